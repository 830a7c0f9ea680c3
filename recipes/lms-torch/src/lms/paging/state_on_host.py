"""A tensor of an optimizer's state whose bytes are on the host, and the way there and back."""

from __future__ import annotations

from typing import Any

import torch

from lms.errors import LMSError
from lms.paging.device import Copy, Device, HostMemory
from lms.paging.reference_counts import use_count, uses_of_one_view
from lms.paging.tensors import flat_view, is_fake, is_plain, may_be_shared_outside, nbytes_of

_REFUSAL = (
    "this state is on the host between the optimizer's steps, by lms.page_optimizer: take the copy "
    "that optimizer.state_dict() has, or end the paging with its remove()"
)


class StateOnHost:
    """Stands for a tensor in an optimizer's state while the bytes are on the host.

    Its copies, by `copy.deepcopy` or by pickle, are tensors on the device. All else that is asked
    of it is an LMSError.
    """

    def __init__(self, device: Device, tensor: torch.Tensor, host: HostMemory) -> None:
        self._device, self._host = device, host
        self._like = tensor.new_empty(0)
        self._layout = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()

    def page_in(self) -> tuple[torch.Tensor, Copy]:
        """Begins the copy to the device; the tensor may be used once the copy is joined."""
        flat, copy = self._device.page_in(self._host, self._like)
        tensor = self._like.new_empty(0)
        tensor.data = flat.as_strided(*self._layout)  # alone in its storage, as a view is not
        return tensor, copy

    @torch.no_grad()
    def fetched(self) -> torch.Tensor:
        """The tensor on the device, and the copy on the host stays."""
        with self._device.aside():
            tensor, copy = self.page_in()
            copy.join(tensor)
            return tensor

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self.fetched(),)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("_") else LMSError(_REFUSAL)

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        """Refuses all of torch's functions."""
        raise LMSError(_REFUSAL)


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


class Departure:
    """A tensor of the state on its way to the host; the state has it until it is `done`."""

    def __init__(self, device: Device, tensor: torch.Tensor) -> None:
        self._device, self._tensor = device, tensor
        self._host, self._copy = device.page_out(flat_view(tensor))

    def done(self) -> StateOnHost:
        """Computing waits for the copy; returns what stands for the tensor from now on."""
        self.give_up()
        return StateOnHost(self._device, self._tensor, self._host)

    def give_up(self) -> None:
        """The tensor stays. Computing, which may change it, waits until the copy has read it."""
        self._copy.join()


class Arrival:
    """A tensor of the state on its way to the device; the state has it once it is `done`."""

    def __init__(self, away: StateOnHost) -> None:
        self._tensor, self._copy = away.page_in()

    def done(self) -> torch.Tensor:
        """Computing waits for the copy; the tensor."""
        self._copy.join(self._tensor)
        return self._tensor

    def give_up(self) -> None:
        """The bytes stay on the host. The memory is free for others once the copy is done."""
        self._copy.join()


def can_leave(tensor: Any, device: Device, smallest: int) -> bool:
    """Whether it is a tensor on the device of at least so many bytes, and alone in its storage.

    Others that share the storage (the parts of one buffer for all state) must see its changes.
    """
    if not isinstance(tensor, torch.Tensor) or not is_plain(tensor):
        return False
    if nbytes_of(tensor) < max(smallest, 1) or not device.owns(tensor):
        return False
    if may_be_shared_outside(tensor.untyped_storage()):
        return False
    return is_fake(tensor) or use_count(tensor.untyped_storage()._cdata) <= _ALONE


_ALONE = uses_of_one_view()
