"""The object that autograd keeps instead of a tensor that it saves."""

from __future__ import annotations

import torch

from lms.errors import InplaceError
from lms.paging.paged_parameter import PagedParameter, paged_parameter
from lms.paging.saved_storage import SavedStorage
from lms.paging.source import Source
from lms.paging.tensors import empty_shell, is_plain


class SavedTensor:
    """A view of bytes that may move, with the check for changes that autograd does without hooks.

    Attributes:
        kept: the owner of the bytes; None if `tensor` has them.
        tensor: shares the version counter of the tensor that was saved.
        source: the tensor that was saved. None if `tensor` is that tensor, or of a kind that has no
            storage of its own, or if autograd would save its data.
        iteration: the number of the iteration that saved it.

    Args:
        result: whether the tensor is a result of the operation that saves it.
    """

    __slots__ = (
        *("dtype", "iteration", "kept", "offset", "shape", "source", "stride", "tensor"),
        "version",
    )

    def __init__(
        self,
        tensor: torch.Tensor,
        kept: SavedStorage | PagedParameter | None,
        iteration: int,
        result: bool,
    ) -> None:
        self.kept, self.version, self.iteration = kept, tensor._version, iteration
        # Shares the version counter; bytes only if nothing else has them. A tensor that stays is
        # kept as it is, as autograd does: its `.data` may be another's by the time of backward.
        if kept is not None:
            self.tensor = empty_shell(tensor)
        else:
            self.tensor = tensor.detach() if result else tensor
        self.source: Source | None = None
        if isinstance(kept, SavedStorage) and not result:
            self.source = kept.source_of(tensor)
        elif kept is not None and not result and is_plain(tensor):
            self.source = Source(tensor, keep=False)
        self.shape: tuple[int, ...] = () if tensor.is_nested else tuple(tensor.shape)
        self.stride = tensor.stride() if kept else ()
        self.offset, self.dtype = tensor.storage_offset() if kept else 0, tensor.dtype

    def owner(self) -> SavedStorage | PagedParameter | None:
        """The owner of the bytes; a parameter may be paged since it was saved."""
        return self.kept or paged_parameter(self.tensor)

    def view_of(self, whole: torch.Tensor) -> torch.Tensor:
        """The tensor that was saved, made from the bytes of its whole storage."""
        if self.kept is None:
            return self.tensor
        if whole.dtype != self.dtype:
            whole = whole.view(self.dtype)
        # A change to the tensor that was saved is one to this: they share the version.
        tensor = self.tensor.detach()
        tensor.data = whole.as_strided(self.shape, self.stride, self.offset)
        return tensor

    def check(self) -> None:
        """Raises InplaceError if the tensor was changed since."""
        if isinstance(self.kept, PagedParameter) and self.kept.replaced:
            raise InplaceError(
                f"the data of a paged parameter of shape {list(self.shape)} was replaced between "
                "forward and backward; assign to `.data` outside, or page it no more"
            )
        if self.source is not None and self.source.replaced:
            raise InplaceError(
                f"a tensor of shape {list(self.shape)} that backward needs was given other data, "
                "`tensor.data = ...`, between forward and backward; do that after backward"
            )
        if self.tensor._version != self.version:
            raise InplaceError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: a {self.dtype} tensor of shape {list(self.shape)} is at "
                f"version {self.tensor._version}; expected version {self.version} instead. Hint: "
                "work on a copy of it, or compute in place only after backward"
            )
