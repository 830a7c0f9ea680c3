"""Paging of an optimizer's state: on the host while forward and backward need the memory.

    paged = lms.page_optimizer(optimizer)

Before `step()` the state comes back, bucket by bucket: each bucket of parameters is stepped by
itself while the next one's state is on its way and the last one's leaves. This gives the same bits
only where an optimizer treats every parameter by itself; others are refused.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from lms.errors import LMSError
from lms.paging.device import Copy, Device, HostMemory
from lms.paging.paged_parameter import PagedParameter, paged_among
from lms.paging.tensors import flat_view, nbytes_of
from lms.sizes import Size, parse_size

#: Optimizers whose step treats every parameter by itself.
_SEPARABLE = (
    torch.optim.Adadelta,
    torch.optim.Adagrad,
    torch.optim.Adam,
    torch.optim.Adamax,
    torch.optim.AdamW,
    torch.optim.ASGD,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Rprop,
    torch.optim.SGD,
)


class _StateTensor:
    """One tensor of the state. On the host its storage on the device is empty."""

    def __init__(self, device: Device, tensor: torch.Tensor) -> None:
        self.device, self.tensor = device, tensor
        self.shape, self.stride = tensor.shape, tensor.stride()
        self._host: HostMemory | None = None
        self._copy: Copy | None = None

    def page_out(self) -> None:
        """Begins the copy to the host; `release` gives up the memory."""
        self._host, self._copy = self.device.page_out(flat_view(self.tensor))

    def release(self) -> None:
        """Computing waits for the copy; then the memory is given up."""
        if self._copy is not None:
            self._copy.join()
            self._copy = None
            self.tensor.data = self.tensor.new_empty(0)

    def page_in(self) -> None:
        """Begins the copy to the device."""
        if self._host is not None:
            whole, self._copy = self.device.page_in(self._host, self.tensor.new_empty(0))
            self.tensor.data = whole.as_strided(self.shape, self.stride)
            self._host = None

    def ready(self) -> None:
        """Computing waits for the copy to the device."""
        if self._copy is not None:
            self._copy.join()
            self._copy = None


def bring_in(parameters: list[PagedParameter]) -> None:
    """Has parameters in memory, of a class that optimizers know."""
    for parameter in parameters:
        parameter.page_in()
    for parameter in parameters:
        parameter.ready()
        parameter.watch(False)  # optimizers treat a class that they do not know otherwise


def copy_out(parameters: list[PagedParameter]) -> None:
    """Begins the copies of parameters that a step has changed, but those that stay."""
    for parameter in parameters:
        parameter.watch(True)
        parameter.mark_changed()
        if not parameter.owner.stays(parameter):
            parameter.page_out()


def release(parameters: list[PagedParameter]) -> None:
    """Gives up the memory of parameters, but those that stay."""
    for parameter in parameters:
        if not parameter.owner.stays(parameter) and not parameter.referenced:
            parameter.release()


#: Optimizers that step in buckets.
_by_optimizer: weakref.WeakKeyDictionary[torch.optim.Optimizer, PagedOptimizer] = (
    weakref.WeakKeyDictionary()
)


def paged_optimizer(optimizer: torch.optim.Optimizer) -> PagedOptimizer | None:
    """The paging of an optimizer's state, if it is paged."""
    return _by_optimizer.get(optimizer)


class PagedOptimizer:
    """Keeps an optimizer's state on the host between its steps.

    Args:
        optimizer: one of torch's that treat every parameter by itself.
        bucket: bytes of parameters that are stepped at a time.
        smallest: tensors of fewer bytes stay.

    Raises:
        LMSError: the optimizer is of another kind.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        device: Device,
        bucket: Size = "256MiB",
        smallest: Size = "64KiB",
    ) -> None:
        if type(optimizer) not in _SEPARABLE:
            names = ", ".join(kind.__name__ for kind in _SEPARABLE)
            raise LMSError(
                f"the state of {type(optimizer).__name__} cannot be paged: stepping some of its "
                f"parameters at a time might not give the same result; it can for {names}"
            )
        self.optimizer, self.device = optimizer, device
        self.bucket = parse_size(bucket, "bucket")
        self.smallest = parse_size(smallest, "smallest")
        self._state: dict[torch.Tensor, list[_StateTensor]] = {}
        self._groups: list[list[torch.Tensor]] = []
        self.stepping = False
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
            optimizer.register_state_dict_pre_hook(lambda _: self.bring_back()),
        ]
        self._last: list[torch.Tensor] = []
        _by_optimizer[optimizer] = self

    @torch.no_grad()
    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Steps all buckets but the last, which the step that follows is for."""
        if self.stepping:
            return
        if (args and args[-1] is not None and callable(args[-1])) or kwargs.get("closure"):
            raise LMSError("an optimizer with paged state takes no closure: step once per call")
        buckets = self._buckets()
        self._groups = [group["params"] for group in optimizer.param_groups]
        self._fetch(buckets[0])
        self.stepping = True
        try:
            for number, parameters in enumerate(buckets):
                self._ready(parameters)
                if number + 1 < len(buckets):
                    self._fetch(buckets[number + 1])
                self._restrict(parameters)
                if number + 1 < len(buckets):
                    optimizer.step()
                    self._send(parameters)
                    if number:
                        self._release(buckets[number - 1])
        except BaseException:
            self._restrict(None)
            raise
        finally:
            self.stepping = False
        self._last = buckets[-1]
        if len(buckets) > 1:
            self._release(buckets[-2])

    @torch.no_grad()
    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Sends the last bucket's state out."""
        if not self.stepping:
            self._restrict(None)
            self._send(self._last)
            self._release(self._last)

    def _buckets(self) -> list[list[torch.Tensor]]:
        """Parameters in order, about `bucket` bytes at a time; at least one list."""
        buckets: list[list[torch.Tensor]] = [[]]
        size = 0
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                nbytes = nbytes_of(parameter)
                if buckets[-1] and size + nbytes > self.bucket:
                    buckets.append([])
                    size = 0
                buckets[-1].append(parameter)
                size += nbytes
        return buckets

    def _restrict(self, parameters: list[torch.Tensor] | None) -> None:
        """Leaves the optimizer only some parameters; all again with None."""
        only = None if parameters is None else {id(parameter) for parameter in parameters}
        for group, everything in zip(self.optimizer.param_groups, self._groups, strict=True):
            group["params"] = [p for p in everything if only is None or id(p) in only]

    def _fetch(self, parameters: list[torch.Tensor]) -> None:
        """Begins the copies of a bucket to the device."""
        for parameter in parameters:
            for tensor in self._state.get(parameter, ()):
                tensor.page_in()
        with self.device.aside():
            for paged in paged_among(parameters):
                paged.page_in()

    def _ready(self, parameters: list[torch.Tensor]) -> None:
        """Computing waits until a bucket is on the device."""
        for parameter in parameters:
            for tensor in self._state.pop(parameter, ()):
                tensor.ready()
        with self.device.aside():
            bring_in(paged_among(parameters))

    def _send(self, parameters: list[torch.Tensor]) -> None:
        """Begins the copies of a bucket to the host."""
        with self.device.aside():
            for parameter in parameters:
                state = [
                    _StateTensor(self.device, tensor)
                    for tensor in self.optimizer.state.get(parameter, {}).values()
                    if isinstance(tensor, torch.Tensor)
                    and nbytes_of(tensor) >= self.smallest
                    and self.device.owns(tensor)
                ]
                for tensor in state:
                    tensor.page_out()
                self._state[parameter] = state
            copy_out(paged_among(parameters))

    def _release(self, parameters: list[torch.Tensor]) -> None:
        """Gives up a bucket's memory on the device."""
        with self.device.aside():
            for parameter in parameters:
                for tensor in self._state.get(parameter, ()):
                    tensor.release()
            release(paged_among(parameters))

    @torch.no_grad()
    def bring_back(self) -> None:
        """All state to the device again, as for a checkpoint."""
        for state in self._state.values():
            for tensor in state:
                tensor.release()
                tensor.page_in()
                tensor.ready()
        self._state.clear()

    def remove(self) -> None:
        """Brings the state back and leaves the optimizer alone from now on."""
        self.bring_back()
        _by_optimizer.pop(self.optimizer, None)
        for hook in self._hooks:
            hook.remove()
