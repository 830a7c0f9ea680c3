"""Storages as the log of operations knows them: how their values came to be."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from lms.operations.recipe import Given, Operation, Value
from lms.operations.table import COMMUNICATION, STATISTICS, changes_statistics
from lms.paging.saved_storage import SavedStorage
from lms.paging.tensors import is_plain


class LoggedStorage:
    """A storage that operations have touched.

    Attributes:
        reference: while it is held, no other storage gets the address.
        makers: for each of its values the operation that made it; None if it cannot be repeated.
        changed: for each change the moment, by the log's count.
        version: of its tensors, as it must be at the next use unless it was changed unseen.
        given: if it is from before the iteration and may be kept.
        block: its number among the iteration's saved storages, and that.
        counter: shares the version of the tensor that was saved first.
    """

    __slots__ = (
        *("block", "changed", "counter", "given", "makers", "nbytes", "number", "reference"),
        "version",
    )

    def __init__(
        self,
        number: int,
        storage: torch.UntypedStorage,
        maker: Operation | None,
        version: int | None = None,
    ) -> None:
        self.number, self.nbytes, self.version = number, storage.nbytes(), version
        self.reference = StorageWeakRef(storage)
        self.makers: list[Operation | None] = [maker]
        self.changed: list[int] = []
        self.given: Given | None = None
        self.block: tuple[int, weakref.ref[SavedStorage]] | None = None
        self.counter: torch.Tensor | None = None

    def used(self, version: int | None, moment: int) -> None:
        """A tensor of it is used: after an unseen change it has a value that nothing makes."""
        if version != self.version:
            self.change(None, moment)
            self.version = version

    def change(self, maker: Operation | None, moment: int) -> None:
        """It gets another value."""
        self.makers.append(maker)
        self.changed.append(moment)

    @property
    def current(self) -> bool:
        """Whether it has not been changed since its last use."""
        tensor = self.given.tensor if self.counter is None and self.given else self.counter
        return tensor is None or version_of(tensor) == self.version

    @property
    def value(self) -> Value:
        """Its value now."""
        return Value(self.number, len(self.changed))

    def value_at(self, moment: int) -> Value:
        """Its value after a moment."""
        return Value(self.number, sum(changed <= moment for changed in self.changed))


def address_of(tensor: torch.Tensor) -> int:
    """The address of its storage, which no other has while a reference to it is held."""
    return int(tensor.untyped_storage()._cdata)


def version_of(tensor: torch.Tensor) -> int | None:
    """Autograd's count of changes; None for a tensor of inference mode, which has none."""
    return None if tensor.is_inference() else tensor._version


def is_known_kind(tensor: torch.Tensor) -> bool:
    """Whether it is a tensor with a storage of its own, or a parameter, that is what it seems."""
    kind = is_plain(tensor) or type(tensor) is torch.nn.Parameter
    return kind and not tensor.is_conj() and not tensor.is_neg() and tensor.layout is torch.strided


def changed_by(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The arguments that an operation changes."""
    if func.namespace in COMMUNICATION:  # their schemas do not tell
        return [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if not func._schema.is_mutable and not changes_statistics(func, args):
        return []
    found: list[Any] = []
    if changes_statistics(func, args):
        return [args[n] for n in STATISTICS if isinstance(args[n], torch.Tensor)]
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            found += tree_leaves(value)
    return [leaf for leaf in found if isinstance(leaf, torch.Tensor)]
