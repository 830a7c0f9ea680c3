"""The choice of saved tensors that LMS may move."""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lms.paging.device import Device
from lms.paging.tensors import is_plain, may_be_shared_outside


class EligibleTensors:
    """Tells tensors that may leave from those that stay: parameters, their views, small ones.

    Args:
        smallest: storages of fewer bytes always stay (DEFAULT_SMALLEST in `lms/sizes.py`).
    """

    def __init__(self, device: Device, smallest: int) -> None:
        self.device, self.smallest = device, smallest
        self._parameters: dict[int, StorageWeakRef] = {}
        self._here, self._elsewhere = False, None  # type: bool, torch.device | None

    def __contains__(self, tensor: torch.Tensor) -> bool:
        if isinstance(tensor, torch.nn.Parameter):
            self._remember(tensor)
            return False
        if not is_plain(tensor):
            return False
        if not self.device.owns(tensor):
            if tensor.untyped_storage().nbytes() >= self.smallest:
                self._elsewhere = tensor.device
            return False
        if isinstance(tensor._base, torch.nn.Parameter):
            self._remember(tensor)
            return False
        if tensor.is_conj() or tensor.is_neg():
            return False
        storage = tensor.untyped_storage()
        reference = self._parameters.get(storage._cdata)
        if reference is not None and not reference.expired():
            return False
        if may_be_shared_outside(storage):
            return False
        nbytes = storage.nbytes()
        found = nbytes >= max(self.smallest, 1) and nbytes % tensor.element_size() == 0
        self._here |= found
        return found

    def take_places(self) -> tuple[bool, torch.device | None]:
        """Since the last call: whether there was any, and where else large tensors were saved."""
        places = self._here, self._elsewhere
        self._here, self._elsewhere = False, None
        return places

    def _remember(self, tensor: torch.Tensor) -> None:
        """A parameter's storage: whatever shares it stays."""
        if tensor.layout is torch.strided:
            reference = StorageWeakRef(tensor.untyped_storage())
            self._parameters.setdefault(reference.cdata, reference)
