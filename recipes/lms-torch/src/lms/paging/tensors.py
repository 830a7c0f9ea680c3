"""Views of whole storages, and the kinds of tensors that paging tells apart."""

from __future__ import annotations

import torch


def flat_view(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage of `tensor` as one dimension of its dtype, sharing the memory."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((count,), (1,), 0)


def independent_view(tensor: torch.Tensor) -> torch.Tensor:
    """As `flat_view`, but with a version of its own, and no other tensor behind it."""
    storage = tensor.untyped_storage()
    count = storage.nbytes() // tensor.element_size()
    return tensor.new_empty(0).set_(storage, 0, (count,), (1,))


def restore_storage(tensor: torch.Tensor, nbytes: int) -> torch.Tensor:
    """Gives a vacated storage its memory again; returns an `independent_view` of it."""
    tensor.untyped_storage().resize_(nbytes)
    return independent_view(tensor)


def empty_shell(tensor: torch.Tensor) -> torch.Tensor:
    """A detached tensor without bytes that shares the version counter of `tensor`."""
    shell = tensor.detach()
    shell.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return shell


def nbytes_of(tensor: torch.Tensor) -> int:
    """Bytes of the tensor's elements; its storage may be larger."""
    return tensor.numel() * tensor.element_size()


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether it is a view of one storage and nothing else: not nested, sparse or a subclass."""
    if type(tensor) is not torch.Tensor and not is_fake(tensor):
        return False
    return tensor.layout is torch.strided and not tensor.is_nested


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether it is a tensor without numbers, as planning uses them."""
    from torch._subclasses.fake_tensor import FakeTensor

    return type(tensor) is FakeTensor


def are_numbers_absent() -> bool:
    """Whether a plan is made without numbers: then all tensors that take part are fake."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def may_be_shared_outside(storage: torch.UntypedStorage) -> bool:
    """Whether others, of whom torch does not know, may hold its memory too, and write there.

    Such is memory from NumPy, by DLPack, or from another process; torch cannot resize that.
    """
    return not storage.resizable() or (storage.device.type != "cuda" and storage.is_shared())
