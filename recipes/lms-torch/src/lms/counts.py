"""How many hold a storage: torch's own function, or ours where torch was built without it."""

from __future__ import annotations

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
