"""How many hold a storage: torch's own function, or ours where torch was built without it."""

from __future__ import annotations

import sys

import torch

try:
    _count = torch._C._storage_Use_Count
except AttributeError:  # torch 2.6 without CUDA
    from lms._storage import use_count as _count  # type: ignore[attr-defined]


def use_count(storage: int) -> int:
    """Strong references to a storage.

    Args:
        storage: its address, as `StorageWeakRef.cdata` and `UntypedStorage._cdata` have it.
    """
    return int(_count(storage))


def holders(tensor: torch.Tensor) -> int:
    """How many hold a tensor's storage; only to be compared with other results of this.

    Python's own references to the storage count as well: torch has one for all of them.
    """
    storage = tensor.untyped_storage()
    return use_count(storage._cdata) + sys.getrefcount(storage)
