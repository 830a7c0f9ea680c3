"""The same for tf-keras, Keras 2: what `tf.keras` is with TF_USE_LEGACY_KERAS=1.

Its optimizers have a place where the replicas of a tf.distribute strategy sum up their gradients:
before these are clipped, and before loss scaling looks for infinities. Without such a strategy ours
average there over the ranks. This module is loaded as soon as tf-keras is; Keras 3 is not needed
for that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tf_keras
from tf_keras.src.engine.training import Model
from tf_keras.src.mixed_precision.loss_scale_optimizer import BaseLossScaleOptimizer

KINDS = (
    tf_keras.optimizers.Optimizer,
    tf_keras.optimizers.legacy.Optimizer,
    BaseLossScaleOptimizer,
)
always = False


def average_always() -> None:
    """Let every optimizer of tf-keras average, from now on."""
    global always
    hook()
    always = True


@functools.cache
def hook() -> None:
    """Change the optimizers and models of tf-keras, once."""
    _around(tf_keras.optimizers.Optimizer, "aggregate_gradients", _aggregate)
    _around(tf_keras.optimizers.legacy.Optimizer, "_aggregate_gradients", _aggregate)
    for name in ("fit", "evaluate"):
        _around(Model, name, functools.partial(_with_callbacks, f"_{name}"))
    _compile_without_xla()


def build(optimizer: Any, variables: Any) -> None:
    """Make the optimizer's variables, unless there are some."""
    make = getattr(optimizer, "build", None) or optimizer._create_all_weights
    make(variables)


def _optimizers() -> Any:
    """The module for all optimizers, which Keras 3 calls when it has been imported."""
    import keras  # noqa: F401 (first, or that module would be called before it is complete)

    from ddl_tensorflow import optimizers

    return optimizers


def _around(owner: type, name: str, replacement: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(original, self, *args, **kwargs)

    setattr(owner, name, call)


def _aggregate(original: Callable[..., Any], self: Any, grads_and_vars: Any) -> Any:
    import tensorflow as tf

    optimizers = _optimizers()
    if tf.distribute.has_strategy() or not optimizers.is_distributed(self):
        return original(self, grads_and_vars)
    grads, variables = zip(*grads_and_vars, strict=True)
    return list(zip(optimizers.averaged(self, grads, variables), variables, strict=True))


def _with_callbacks(
    name: str, original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any
) -> Any:
    """`fit` and `evaluate` as those of Keras 3."""
    import tensorflow as tf

    if tf.distribute.has_strategy() or self.distribute_strategy.num_replicas_in_sync > 1:
        return original(self, *args, **kwargs)
    return getattr(_optimizers(), name)(original, self, *args, **kwargs)


def _compile_without_xla() -> None:
    before = Model.jit_compile

    def jit_compile(model: Any) -> Any:
        asked = before.fget(model)
        return asked and not _optimizers().is_distributed(getattr(model, "optimizer", None))

    Model.jit_compile = property(jit_compile, before.fset)
