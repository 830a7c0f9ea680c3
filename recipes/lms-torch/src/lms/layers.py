"""Layers that LMS may compute again in backward instead of moving what they save.

    lms.recompute(model)

LMS decides which of them, when it has seen an iteration; see `lms.again`. Such a layer runs under
torch's checkpoint (not the reentrant one): random numbers are drawn alike, and what it does to its
buffers counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from lms.again import Cost, choose, costs
from lms.errors import LMSError
from lms.plan import Plan, Rates
from lms.trace import Trace

if TYPE_CHECKING:
    from lms.engine import Engine

#: What `recompute` was called for.
registered: list[RecomputedLayers] = []

Shapes = tuple[tuple[int, tuple[int, ...]], ...]


class Layer:
    """One layer; stands in for its `forward`.

    Attributes:
        again: whether it is computed again in backward, from its next forward on.
        fixed: why it never is; empty if it may be.
    """

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name, self.module = name, module
        self.own = module.__dict__.get("forward")  # not its class's
        self.inner = module.forward
        self.again, self.fixed = False, ""
        if any(isinstance(inner, nn.SyncBatchNorm) for inner in module.modules()):
            self.fixed = "it talks to other ranks, which may choose otherwise"
        self.engine: Engine | None = None
        self.number = -1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The layer's forward."""
        engine = self.engine
        if engine is None or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self.inner(*args, **kwargs)
        begun = engine.layer_begins()
        if self.again:
            result = checkpoint(
                self.inner, *args, use_reentrant=False, context_fn=self._contexts, **kwargs
            )
        else:
            before = self._versions()
            result = self.inner(*args, **kwargs)
            if before != self._versions():
                self.fixed = "it changes its buffers"
        tensors = [t for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor)]
        engine.layer_ends(self.number, begun, tensors)
        return result

    def restore(self) -> None:
        """The module has the forward that it had."""
        if self.own is None:
            del self.module.forward
        else:
            self.module.forward = self.own

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the model has copies of its layers, in which no LMS takes a part."""
        return self.__dict__ | {"engine": None, "again": False}

    def _versions(self) -> list[tuple[int, int]]:
        """Of all buffers but a normalisation's statistics, which its result does not depend on."""
        return [
            (id(buffer), buffer._version)
            for module in self.module.modules()
            if not isinstance(module, _NormBase)
            for buffer in module._buffers.values()
            if buffer is not None
        ]

    def _contexts(self) -> tuple[Any, Any]:
        """For the first time and for the second."""
        return nullcontext(), _buffers_aside(self.module)


@contextmanager
def _buffers_aside(layer: nn.Module) -> Iterator[None]:
    """What happens to a normalisation's statistics inside happens to copies."""
    held = [
        (module, name, buffer)
        for module in layer.modules()
        if isinstance(module, _NormBase) and module.training
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    for module, name, buffer in held:
        module._buffers[name] = buffer.clone()
    try:
        yield
    finally:
        for module, name, buffer in held:
            module._buffers[name] = buffer


class RecomputedLayers:
    """The layers of one call of `lms.recompute`, until `remove`.

    Raises:
        LMSError: there are none, or one is compiled, inside another, or given twice.
    """

    def __init__(self, model: nn.Module | Iterable[nn.Module]) -> None:
        if isinstance(model, nn.Module):
            found = dict(_layers(model))
            if not found:
                raise LMSError(
                    f"this {type(model).__name__} has no ModuleList or Sequential whose items "
                    "could be computed again; give a list of its layers"
                )
        else:
            found = {f"layer {number}": module for number, module in enumerate(model)}
            if not found:
                raise LMSError("there are no layers in the list")
        _check(found)
        self.layers = [Layer(name, module) for name, module in found.items()]
        for layer in self.layers:
            layer.module.forward = layer
        registered.append(self)

    def remove(self) -> None:
        """The layers are as they were."""
        registered.remove(self)
        for layer in self.layers:
            if layer.engine is not None:
                layer.engine.layers.drop(layer)
            layer.restore()


def _layers(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The items of a module's outermost ModuleLists and Sequentials, with their names."""
    listed = isinstance(module, nn.ModuleList | nn.Sequential)
    for name, child in module.named_children():
        if listed and not isinstance(child, nn.ModuleList):
            yield prefix + name, child
        else:
            yield from _layers(child, f"{prefix}{name}.")


def _check(layers: dict[str, nn.Module]) -> None:
    from torch.distributed.tensor import DTensor

    names = {id(module): name for name, module in layers.items() if isinstance(module, nn.Module)}
    for name, module in layers.items():
        if not isinstance(module, nn.Module):
            raise LMSError(f"{name} is a {type(module).__name__}, not a torch.nn.Module")
        if module._compiled_call_impl or hasattr(module, "_orig_mod"):
            raise LMSError(
                f"{name} ({type(module).__name__}) is under torch.compile, which decides itself "
                "what it computes again; give LMS layers that are not compiled"
            )
        if any(isinstance(parameter, DTensor) for parameter in module.parameters()):
            raise LMSError(
                f"{name} ({type(module).__name__}) has parameters that are sharded (FSDP, tensor "
                "parallelism): each rank chooses its layers, and to gather them takes all ranks; "
                "use torch.utils.checkpoint there"
            )
        if isinstance(module.__dict__.get("forward"), Layer):
            raise LMSError(f"LMS may compute {name} ({type(module).__name__}) again already")
        if names[id(module)] != name:
            raise LMSError(f"{names[id(module)]} and {name} are the same layer")
        for inner in module.modules():
            if inner is not module and id(inner) in names:
                raise LMSError(f"{names[id(inner)]} is inside {name}; give one of them")


class Layers:
    """All layers that one engine may have computed again, and which are.

    The choice only grows: of iterations of several kinds, each is within what it can be. It goes
    back to what it was, for good, if an iteration turns out longer than before, or has no plan.

    Attributes:
        chosen: those computed again, and what that was predicted to free and to take.
        turn: how often the choice has changed.
    """

    def __init__(self) -> None:
        self.all: list[Layer] = []
        self.chosen: dict[int, Cost] = {}
        self.turn = 0
        self._before: dict[int, Cost] | None = None  # what was chosen before the last choice
        self._next: dict[int, Cost] | None = None  # what is chosen from the next iteration on
        self._seconds: dict[Shapes, float] = {}  # of iterations, before the last choice
        self._settled = False  # whether nothing is chosen any more

    @property
    def pending(self) -> bool:
        """Whether another choice comes into effect with the next iteration."""
        return self._next is not None

    def add(self, layers: Iterable[Layer], engine: Engine) -> None:
        """From now on."""
        for layer in layers:
            layer.engine, layer.number = engine, len(self.all)
            self.all.append(layer)

    def drop(self, layer: Layer) -> None:
        """Not from now on."""
        layer.engine, layer.again, layer.fixed = None, False, "it was taken back"
        for chosen in (self.chosen, self._before, self._next):
            if chosen is not None:
                chosen.pop(layer.number, None)

    def clear(self) -> None:
        """LMS is off."""
        for layer in self.all:
            layer.engine, layer.again = None, False

    def consider(self, trace: Trace, plan: Plan, limit: int, rates: Rates, smallest: int) -> None:
        """An iteration under the present choice is known; chooses more, if that makes it shorter.

        Args:
            plan: was made for `trace` by the arguments that follow.
        """
        if not self.all or self._settled or self.pending:
            return
        shapes = tuple((call.layer, call.shape) for call in trace.calls)
        if plan.seconds > self._seconds.get(shapes, plan.seconds):
            self.retreat()
            return
        free = [n for n, layer in enumerate(self.all) if not layer.fixed and n not in self.chosen]
        more = choose(trace, plan, limit, rates, smallest, free)
        if more:
            known = costs(trace)
            self._seconds[shapes] = plan.seconds
            self._next = self.chosen | {number: known[number] for number in sorted(more)}

    def retreat(self) -> bool:
        """Back to the choice before the last one; whether there is one."""
        if self._before is None:
            return False
        self._next, self._before, self._settled = self._before, None, True
        return True

    def switch(self) -> bool:
        """Between two iterations: puts a choice into effect; whether there was one."""
        if self._next is None:
            return False
        self._before = None if self._settled else self.chosen
        self.chosen, self._next = self._next, None
        self.turn += 1
        for number, layer in enumerate(self.all):
            layer.again = number in self.chosen
        return True


@contextmanager
def recomputing_ends() -> Iterator[None]:
    """Layers that are named inside, of models that end with it, are forgotten."""
    before = list(registered)
    try:
        yield
    finally:
        registered[:] = before
