"""Layers that LMS may compute again in backward instead of moving their saved tensors.

    lms.recompute(model)

LMS decides which of them, when it has seen an iteration (`lms.planning.recompute_policy`). Such a
layer runs under torch's checkpoint (not the reentrant one): random numbers are drawn alike, and a
change to its buffers counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten
from torch.utils.checkpoint import checkpoint

from lms.errors import InplaceError
from lms.hooks.layer_checks import check_layers, find_layers
from lms.paging.tensors import nbytes_of
from lms.planning.recompute_policy import RecomputableLayer
from lms.planning.trace import Shape

#: The calls of `recompute` that have not been removed.
registered: list[RecomputedLayers] = []

#: Buffers of at least so many bytes are taken for constants: changes to them are not undone when
#: the layer is computed again.
_LARGE_BUFFER = 1 << 20
#: Arguments that a layer may be given beside tensors, and lists, tuples and dicts of them.
_PLAIN_ARGUMENTS = (
    *(int, float, complex, bool, str, type(None), torch.dtype, torch.device, torch.Size),
)


class LayerObserver(Protocol):
    """The part of the engine that follows such layers."""

    def layer_begins(self, layer: WatchedLayer, tensors: list[torch.Tensor]) -> tuple[int, int]:
        """The forward of a layer is about to run on `tensors`; for `layer_ends`."""

    def layer_ends(
        self, number: int, start: tuple[int, int], tensors: list[torch.Tensor], shape: Shape
    ) -> None:
        """The forward of a layer has run."""

    def remove_layer(self, layer: WatchedLayer) -> None:
        """The layer is not computed again any more."""


class WatchedLayer(RecomputableLayer):
    """One layer; stands in for its `forward`."""

    def __init__(self, name: str, module: nn.Module) -> None:
        super().__init__(name)
        self.module = module
        own: Any = module.__dict__.get("forward")  # not its class's
        copied = isinstance(own, WatchedLayer)  # with a model, by copying that
        self.own: Any = own.own if copied else own
        self.__wrapped__: Callable[..., Any] = own.__wrapped__ if copied else module.forward
        if any(isinstance(inner, nn.SyncBatchNorm) for inner in module.modules()):
            self.excluded = "it talks to other ranks, which may choose otherwise"
        self.observer: LayerObserver | None = None

    def attach(self, observer: LayerObserver, number: int) -> None:
        """LMS takes a part in it from now on."""
        self.observer, self.number = observer, number

    def detach(self) -> None:
        """LMS takes no part in it any more."""
        super().detach()
        self.observer = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The layer's forward."""
        observer = self.observer
        if observer is None or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self.__wrapped__(*args, **kwargs)
        given, spec = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
        if any(map(is_functorch_wrapped_tensor, tensors)):
            return self.__wrapped__(*args, **kwargs)
        if not tensors or not all(
            isinstance(leaf, (torch.Tensor, *_PLAIN_ARGUMENTS)) for leaf in given
        ):
            self.excluded = "it is given objects that LMS does not see into"
        if any(one.is_nested or one.layout is not torch.strided for one in tensors):
            self.excluded = "it is given a nested or sparse tensor"
            return self.__wrapped__(*args, **kwargs)
        shape: Shape = tuple(tensors[0].shape) if tensors else ()
        before, start = self.versions(), observer.layer_begins(self, tensors)
        if shape in self.recomputed_shapes and not self.excluded:
            result = self._under_checkpoint(given, spec)
        else:
            result = self.__wrapped__(*args, **kwargs)
        if before != self.versions():
            self.excluded = "it changes its buffers"
        tensors += [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        observer.layer_ends(self.number, start, tensors, shape)
        return result

    def _under_checkpoint(self, leaves: list[Any], spec: TreeSpec) -> Any:
        """The layer's forward, to be computed again in backward."""

        # All as leaves: checkpoint saves the tensors among its arguments, not those inside.
        def run(*leaves: Any) -> Any:
            args, kwargs = tree_unflatten(leaves, spec)
            return self.__wrapped__(*args, **kwargs)

        def contexts() -> tuple[nullcontext[None], _Recomputation]:
            return nullcontext(), _Recomputation(self)

        return checkpoint(run, *leaves, use_reentrant=False, context_fn=contexts)

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
        return self.__dict__ | {"observer": None, "recomputed_shapes": set()}

    def versions(self) -> list[tuple[int, int]]:
        """Versions of the tensors that the result depends on: all but buffers with statistics."""
        found: list[torch.Tensor | None] = []
        for module in self.module.modules():
            found += module._parameters.values()
            if not _keeps_statistics(module):
                found += module._buffers.values()
        return [(id(one), one._version) for one in found if one is not None]


def _keeps_statistics(module: nn.Module) -> bool:
    """Whether its buffers are statistics that its result in training does not depend on."""
    return isinstance(module, _NormBase) and type(module).__module__.startswith("torch.nn.")


class _Recomputation:
    """Computes a layer again, as often as backward comes, in the state that it had at first."""

    def __init__(self, layer: WatchedLayer) -> None:
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
                if buffer is not None and nbytes_of(buffer) < _LARGE_BUFFER:
                    undo.append(partial(module._buffers.__setitem__, name, buffer))
                    module._buffers[name] = buffer.clone()
        self.undo = undo

    def __exit__(self, *_: object) -> None:
        for restore in reversed(self.undo):
            restore()
        self.undo = []


class RecomputedLayers:
    """The layers of one call of `lms.recompute`, until `remove`.

    Raises:
        LMSError: there are none, or one is compiled, inside another, or given twice.
    """

    def __init__(self, model: nn.Module | Iterable[nn.Module]) -> None:
        found = find_layers(model)
        check_layers(
            found, [(layer.name, layer.module) for one in registered for layer in one.layers]
        )
        self.layers: list[WatchedLayer] = [
            WatchedLayer(name, module) for name, module in found.items()
        ]
        for layer in self.layers:
            layer.module.forward = layer
        registered.append(self)

    def remove(self) -> None:
        """The layers are as they were. Once is enough."""
        if self in registered:
            registered.remove(self)
        for layer in self.layers:
            if layer.observer is not None:
                layer.observer.remove_layer(layer)
            layer.restore()


@contextmanager
def forget_new_layers() -> Iterator[None]:
    """Inside there are no layers but those named inside; they are forgotten with their models."""
    before, registered[:] = list(registered), []
    try:
        yield
    finally:
        registered[:] = before
