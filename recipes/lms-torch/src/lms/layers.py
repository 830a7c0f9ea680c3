"""Layers that LMS may compute again in backward instead of moving what they save.

    lms.recompute(model)

LMS decides which of them, when it has seen an iteration; see `lms.again`. Such a layer runs under
torch's checkpoint (not the reentrant one): random numbers are drawn alike, and what it does to its
buffers counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from torch.utils.checkpoint import checkpoint

from lms.again import Cost, choose, costs
from lms.errors import InplaceError, LMSError
from lms.plan import Plan, Rates
from lms.trace import Trace

if TYPE_CHECKING:
    from lms.engine import Engine

#: What `recompute` was called for.
registered: list[RecomputedLayers] = []

Shape = tuple[int, ...]

#: Buffers of at least so many bytes are taken for constants: what a layer does to them while it is
#: computed again is not undone.
_LARGE = 1 << 20
#: What a layer may be given beside tensors, and lists, tuples and dicts of them.
_PLAIN = (int, float, complex, bool, str, type(None), torch.dtype, torch.device, torch.Size)


class Layer:
    """One layer; stands in for its `forward`.

    Attributes:
        again: sizes (of its first tensor) with which it is computed again in backward.
        fixed: why it never is; empty if it may be.
    """

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name, self.module = name, module
        own: Any = module.__dict__.get("forward")  # not its class's
        copied = isinstance(own, Layer)  # with a model, by copying that
        self.own: Any = own.own if copied else own
        self.__wrapped__: Callable[..., Any] = own.__wrapped__ if copied else module.forward
        self.again, self.fixed = set[Shape](), ""
        if any(isinstance(inner, nn.SyncBatchNorm) for inner in module.modules()):
            self.fixed = "it talks to other ranks, which may choose otherwise"
        self.engine: Engine | None = None
        self.number = -1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The layer's forward."""
        engine = self.engine
        if engine is None or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self.__wrapped__(*args, **kwargs)
        given, spec = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
        if any(map(is_functorch_wrapped_tensor, tensors)):
            return self.__wrapped__(*args, **kwargs)
        if not tensors or not all(isinstance(leaf, (torch.Tensor, *_PLAIN)) for leaf in given):
            self.fixed = "it is given what LMS does not see into"
        if any(one.is_nested or one.layout is not torch.strided for one in tensors):
            self.fixed = "it is given a nested or sparse tensor"
            return self.__wrapped__(*args, **kwargs)
        shape: Shape = tuple(tensors[0].shape) if tensors else ()
        before, begun = self.versions(), engine.layer_begins(self, tensors)
        if shape in self.again and not self.fixed:
            # All as leaves: checkpoint saves the tensors among its arguments, not those inside.
            def run(*leaves: Any) -> Any:
                inside, named = tree_unflatten(leaves, spec)
                return self.__wrapped__(*inside, **named)

            result = checkpoint(
                run, *given, use_reentrant=False, context_fn=lambda: (nullcontext(), _Again(self))
            )
        else:
            result = self.__wrapped__(*args, **kwargs)
        if before != self.versions():
            self.fixed = "it changes its buffers"
        tensors += [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        engine.layer_ends(self.number, begun, tensors, shape)
        return result

    def restore(self) -> None:
        """The module has the forward that it had, unless somebody has wrapped this one."""
        if self.module.__dict__.get("forward") is not self:
            return
        if self.own is None:
            del self.module.forward
        else:
            self.module.forward = self.own

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the model has copies of its layers, in which no LMS takes a part."""
        return self.__dict__ | {"engine": None, "again": set()}

    def versions(self) -> list[tuple[int, int]]:
        """Of all that the result depends on: parameters, and buffers but statistics."""
        found: list[torch.Tensor | None] = []
        for module in self.module.modules():
            found += module._parameters.values()
            if not _keeps_statistics(module):
                found += module._buffers.values()
        return [(id(one), one._version) for one in found if one is not None]


def _keeps_statistics(module: nn.Module) -> bool:
    """Whether its buffers are statistics that its result in training does not depend on."""
    return isinstance(module, _NormBase) and type(module).__module__.startswith("torch.nn.")


class _Again:
    """The second time that a layer is computed, as often as backward comes: as it was at first."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.versions = layer, layer.versions()
        self.modes = [(module, module.training) for module in layer.module.modules()]
        self.undo: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        if self.versions != self.layer.versions():
            raise InplaceError(
                f"a parameter or buffer of {self.layer.name}, which LMS computes again, has been "
                "changed between forward and backward; change it after backward, or leave this "
                "layer out of lms.recompute"
            )
        undo: list[Callable[[], None]] = []
        for module, training in self.modes:
            undo.append(partial(setattr, module, "training", module.training))
            module.training = training
            for name, buffer in module._buffers.items():
                if buffer is not None and buffer.numel() * buffer.element_size() < _LARGE:
                    undo.append(partial(module._buffers.__setitem__, name, buffer))
                    module._buffers[name] = buffer.clone()
        self.undo = undo

    def __exit__(self, *_: object) -> None:
        for back in reversed(self.undo):
            back()
        self.undo = []


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
        """The layers are as they were. Once is enough."""
        if self in registered:
            registered.remove(self)
        for layer in self.layers:
            if layer.engine is not None:
                layer.engine.remove_layer(layer)
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
    known = {id(layer.module): layer.name for one in registered for layer in one.layers}
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
        if id(module) in known:
            raise LMSError(f"LMS may compute {name} ({type(module).__name__}) again already")
        if names[id(module)] != name:
            raise LMSError(f"{names[id(module)]} and {name} are the same layer")
        for inner in module.modules():
            if inner is not module and id(inner) in names | known:
                within = (names | known)[id(inner)]
                raise LMSError(f"{within} is inside {name}; give one of them")
    for one in registered:
        for layer in one.layers:
            for inner in layer.module.modules():
                if id(inner) in names:
                    raise LMSError(f"{names[id(inner)]} is inside {layer.name}, given before")


@dataclass
class Kind:
    """Iterations of one kind: the layers' calls with their sizes, and the memory at the beginning.

    Attributes:
        seconds: predicted before the last choice.
        chosen: all that is computed again, at which size and at which cost; `before` the same
            before the last choice.
        most: how many layers the next choice may have; fewer after each that was wrong.
    """

    calls: tuple[tuple[int, Shape], ...]
    base: int
    seconds: float
    before: dict[tuple[int, Shape], Cost]
    most: int


class Layers:
    """All layers that one engine may have computed again, and which are, by size.

    The choice of one kind of iterations only adds to that of others with the same sizes. It is
    taken back, and one of half as many layers is tried, if an iteration turns out longer than
    before, or has no plan.

    Attributes:
        chosen: what is computed again, and what that was predicted to free and to take.
        turn: how often the choice has changed.
    """

    def __init__(self) -> None:
        self.all: dict[int, Layer] = {}
        self.chosen: dict[tuple[int, Shape], Cost] = {}
        self.turn = 0
        self._count = 0
        self._kinds: list[Kind] = []
        self._last: Kind | None = None  # whose the last choice was
        self._next: dict[tuple[int, Shape], Cost] | None = None

    @property
    def pending(self) -> bool:
        """Whether another choice comes into effect with the next iteration."""
        return self._next is not None

    def add(self, layers: Iterable[Layer], engine: Engine) -> None:
        """From now on."""
        for layer in layers:
            layer.engine, layer.number = engine, self._count
            self.all[self._count] = layer
            self._count += 1

    def drop(self, layer: Layer) -> None:
        """Not from now on."""
        layer.engine, layer.again = None, set()
        del self.all[layer.number]
        for chosen in (self.chosen, self._next or {}, *(kind.before for kind in self._kinds)):
            for key in [key for key in chosen if key[0] == layer.number]:
                del chosen[key]

    def clear(self) -> None:
        """LMS is off."""
        for layer in self.all.values():
            layer.engine, layer.again = None, set()

    def consider(
        self, trace: Trace, plan: Plan, limit: int, rates: Rates, smallest: int, slight: int
    ) -> None:
        """An iteration under the present choice is known; chooses more, if that makes it shorter.

        Args:
            plan: was made for `trace` by the three arguments that follow.
            slight: bytes by which the memory under iterations of one kind may differ.
        """
        if not self.all or self.pending:
            return
        shapes = {call.layer: call.shape for call in trace.calls}
        calls = tuple((call.layer, call.shape) for call in trace.calls)
        alike = (k for k in self._kinds if k.calls == calls and abs(k.base - trace.base) <= slight)
        kind = next(alike, None)
        if kind is None:
            kind = Kind(calls, trace.base, plan.seconds, {}, len(self.all))
            self._kinds.append(kind)
        elif plan.seconds > kind.seconds:
            if kind is self._last:
                self.retreat()
            return
        if not kind.most:
            return
        free = [
            number
            for number, layer in self.all.items()
            if not layer.fixed and number in shapes and (number, shapes[number]) not in self.chosen
        ]
        more = choose(trace, plan, limit, rates, smallest, free, kind.most)
        if more:
            known = costs(trace)
            kind.seconds, kind.before, kind.most = plan.seconds, self.chosen, len(more)
            added = {(number, shapes[number]): known[number] for number in sorted(more)}
            self._last, self._next = kind, self.chosen | added

    def retreat(self) -> bool:
        """Back to what was before the last choice; whether anything is, or will be, taken back."""
        if self.pending:
            return True
        if not self.chosen:
            return False
        kind, self._last = self._last, None
        self._next = kind.before if kind is not None else {}
        if kind is not None:
            kind.most //= 2
        return True

    def switch(self) -> bool:
        """Between two iterations: puts a choice into effect; whether there was one."""
        if self._next is None:
            return False
        self.chosen, self._next = self._next, None
        self.turn += 1
        for number, layer in self.all.items():
            layer.again = {shape for n, shape in self.chosen if n == number}
        return True


@contextmanager
def recomputing_ends() -> Iterator[None]:
    """Inside there are no layers but those named inside; they are forgotten with their models."""
    before, registered[:] = list(registered), []
    try:
        yield
    finally:
        registered[:] = before
