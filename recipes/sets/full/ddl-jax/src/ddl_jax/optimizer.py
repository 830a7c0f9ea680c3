"""optax's transformations with gradients averaged over the ranks."""

from __future__ import annotations

from typing import Any

from ddl_jax.functions import allreduce


def DistributedOptimizer(optimizer: Any, op: str = "mean") -> Any:
    """Average the gradients over the ranks before `optimizer` takes them.

    Args:
        optimizer: a transformation of optax. It may stand in `optax.chain`, and want values or
            functions beside the gradients.
        op: "mean" or "sum".

    Returns:
        A transformation of optax, for use inside `jit`. Small gradients travel together.

    Raises:
        ValueError: another `op`.
    """
    import optax

    if op not in ("mean", "sum"):
        raise ValueError(f"ddl.jax.DistributedOptimizer: op is {op!r} but must be 'mean' or 'sum'")
    inner = optax.with_extra_args_support(optimizer)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        return inner.update(allreduce(updates, op), state, params, **extra)

    return optax.GradientTransformationExtraArgs(inner.init, update)
