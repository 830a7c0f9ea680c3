"""Recipes: the operations that make a saved storage once more from what is in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from lms.errors import InplaceError, LMSError
from lms.operations.table import STATISTICS, changes_statistics, numerics
from lms.paging.saved_storage import SavedStorage
from lms.paging.tensors import flat_view, nbytes_of
from lms.sizes import size_text


class Value(NamedTuple):
    """The bytes that a storage had after so many changes."""

    storage: int
    changes: int


class View(NamedTuple):
    """A tensor's place in a storage; strides and offset in elements."""

    storage: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class Operation:
    """One operation of the program, with its tensors' places instead of the tensors.

    Attributes:
        index: its place among the iteration's.
        reads: the values that it depends on; `changed` the storages that it writes into.
        results: the storages of its results, in order.
        state: the random generator's before it, if it draws numbers.
        moments: of the device's, before it and after; None if nobody measures.
    """

    __slots__ = (
        *("args", "changed", "function", "index", "kwargs", "moments", "reads", "results"),
        *("settings", "state"),
    )

    def __init__(
        self,
        index: int,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reads: Sequence[Value],
        changed: Sequence[int],
    ) -> None:
        self.index, self.function, self.args, self.kwargs = index, function, args, kwargs
        self.reads, self.changed = tuple(reads), tuple(changed)
        self.results: tuple[int, ...] = ()
        self.state: torch.Tensor | None = None
        self.moments: tuple[Any, Any] | None = None
        self.settings = numerics()

    def repeat(self, known: dict[int, torch.Tensor]) -> None:
        """Computes it again; `known` has a tensor of each storage, and gets those of results."""

        def tensor_at(view: View) -> torch.Tensor:
            return _view_of(known[view.storage], view)

        args = list(self.args)
        if changes_statistics(self.function, self.args):
            like = tensor_at(args[0])
            for number in STATISTICS:
                if isinstance(args[number], View):  # they have changed once already
                    args[number] = like.new_zeros(args[number].shape, dtype=args[number].dtype)
        args, kwargs = tree_map_only(View, tensor_at, (args, self.kwargs), is_leaf=_is_view)
        if self.state is None:
            result = self.function(*args, **kwargs)
        else:
            result = self._draw_again(args, kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        for storage, tensor in zip(self.results, made, strict=True):
            known.setdefault(storage, tensor)

    def _draw_again(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """With the random numbers that it drew at first; later ones are not touched."""
        place = next(leaf.device for leaf in tree_leaves((args, kwargs)) if torch.is_tensor(leaf))
        now = random_state(place)
        _set_random_state(place, self.state)
        try:
            return self.function(*args, **kwargs)
        finally:
            _set_random_state(place, now)


class Repeater(Protocol):
    """The part of a device that computes for LMS."""

    def computing(self) -> AbstractContextManager[None]:
        """The code inside is computing, though LMS asks for it."""


class Given(NamedTuple):
    """A tensor from before the iteration: a parameter, or a small one.

    `version` is that of its last use in forward. The memory of `view` is from its first use:
    `tensor` may be given other data.
    """

    tensor: torch.Tensor
    version: int | None
    view: torch.Tensor

    @property
    def changed(self) -> bool:
        """Whether it was changed, or its memory given up, since its last use."""
        if nbytes_of(self.view) > self.view.untyped_storage().nbytes():
            return True
        return self.tensor._version != self.version

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return nbytes_of(self.view)


class Kept(NamedTuple):
    """A saved storage. `counter` shares the version of its tensors, `version` is from forward."""

    counter: torch.Tensor
    version: int | None
    block: SavedStorage

    @property
    def changed(self) -> bool:
        """Whether it was changed, or its memory given up, since its last use."""
        flat = self.block.flat
        if flat is not None and flat.untyped_storage().nbytes() != self.block.nbytes:
            return True
        return self.version is not None and self.counter._version != self.version

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.block.nbytes


class Recipe:
    """Makes the bytes of one storage again.

    Attributes:
        operations: in the order of the program.
        blocks: by storage the saved storages that it starts from; they stay until it has run.
        given: by storage the tensors from before the iteration that it starts from.
    """

    def __init__(
        self,
        device: Repeater,
        target: int,
        operations: Sequence[Operation],
        blocks: dict[int, Kept],
        given: dict[int, Given],
    ) -> None:
        self._device, self._target = device, target
        self.operations, self.blocks, self.given = operations, blocks, given

    def run(self, like: torch.Tensor) -> torch.Tensor:
        """The bytes once more, flat, with the dtype of `like`.

        Raises:
            InplaceError: a tensor that it needs was changed unseen.
            LMSError: torch's settings are others now.
        """
        starts: list[Given | Kept] = [*self.given.values(), *self.blocks.values()]
        for start in starts:
            if start.changed:
                raise InplaceError(
                    f"a tensor of {size_text(start.nbytes)}, from which LMS computes again what "
                    "backward needs, has been changed between its use in forward and backward; "
                    "change it after backward, or switch LMS on without recompute_operations"
                )
        # Each thread has its own number of threads; results on a GPU do not depend on it.
        first, now = int(like.is_cuda), numerics()
        if any(operation.settings[first:] != now[first:] for operation in self.operations):
            raise LMSError(
                "a setting of torch.backends, the default dtype, or the number of threads, has "
                "changed between forward and backward, so LMS cannot compute again what backward "
                "needs to the bit; change it between two steps, or switch LMS on without "
                "recompute_operations"
            )
        known = {storage: given.view for storage, given in self.given.items()}
        known |= {storage: kept.block.ready() for storage, kept in self.blocks.items()}
        last = {v.storage: op.index for op in self.operations for v in op.reads}
        # Operations were seen below autocast, which may be on in backward.
        with self._device.computing(), torch._C._DisableAutocast():
            for operation in self.operations:
                operation.repeat(known)
                for storage in {*last, *operation.results}:
                    if storage != self._target and last.get(storage, -1) <= operation.index:
                        known.pop(storage, None)
                        last.pop(storage, None)
        whole = flat_view(known[self._target])
        return whole if whole.dtype == like.dtype else whole.view(like.dtype)


def random_state(place: torch.device) -> torch.Tensor:
    """The state of the random generator of a device."""
    return torch.cuda.get_rng_state(place) if place.type == "cuda" else torch.get_rng_state()


def _set_random_state(place: torch.device, state: torch.Tensor | None) -> None:
    assert state is not None
    if place.type == "cuda":
        torch.cuda.set_rng_state(state, place)
    else:
        torch.set_rng_state(state)


def _is_view(leaf: object) -> bool:
    return isinstance(leaf, View)


def _view_of(tensor: torch.Tensor, view: View) -> torch.Tensor:
    if tensor.dtype != view.dtype:
        tensor = flat_view(tensor).view(view.dtype)
    return tensor.as_strided(view.shape, view.stride, view.offset)
