"""References to a storage, by torch's own count, or by ours where torch was built without it."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lms.paging.tensors import flat_view


def _torch_count() -> Callable[[int], int]:
    if hasattr(torch._C, "_storage_Use_Count"):
        return torch._C._storage_Use_Count
    from lms._storage import use_count  # torch 2.6 without CUDA

    return use_count


_count = _torch_count()


def use_count(storage: int) -> int:
    """Strong references to a storage.

    Args:
        storage: its address, as `StorageWeakRef.cdata` and `UntypedStorage._cdata` have it.
    """
    return int(_count(storage))


def count_references(tensor: torch.Tensor) -> int:
    """References to a tensor's storage; only to be compared with other results of this.

    Python's own references to the storage count as well: torch has one for all of them.
    """
    storage = tensor.untyped_storage()
    return use_count(storage._cdata) + sys.getrefcount(storage)


def references_of_one_view() -> int:
    """The result of `count_references` when a single `flat_view` holds a storage."""
    with torch.no_grad():
        return count_references(flat_view(torch.empty(1)))


def uses_of_one_parameter() -> int:
    """The result of `use_count` when a single parameter holds a storage."""
    only = torch.nn.Parameter(torch.empty(1))
    return use_count(only.untyped_storage()._cdata)


def uses_of_one_view() -> int:
    """The result of `use_count` when a single `flat_view` holds a storage."""
    with torch.no_grad():
        only = flat_view(torch.empty(1))
    return use_count(StorageWeakRef(only.untyped_storage()).cdata)
