"""Paging of an optimizer's state: on the host while forward and backward need the memory.

    paged = lms.page_optimizer(optimizer)

Before `step()` the state comes back, bucket by bucket: each bucket of parameters is stepped by
itself while the next one's state is on its way and the last one's leaves. This gives the same bits
only where an optimizer treats every parameter by itself; others are refused.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from lms.device import Copy, Device, Room, flat
from lms.errors import LMSError
from lms.sizes import parse_size
from lms.weights import Weight, weight_of

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


class _Page:
    """One tensor of the state. On the host its storage on the device is empty."""

    def __init__(self, device: Device, tensor: torch.Tensor) -> None:
        self.device, self.tensor = device, tensor
        self.shape, self.stride = tensor.shape, tensor.stride()
        self.room: Room | None = None
        self.copy: Copy | None = None

    def out(self) -> None:
        """Begins the copy to the host; `settle` gives up the memory."""
        self.room, self.copy = self.device.page_out(flat(self.tensor))

    def settle(self) -> None:
        """Computing waits for the copy; then the memory is given up."""
        if self.copy is not None:
            self.copy.join()
            self.copy = None
            self.tensor.data = self.tensor.new_empty(0)

    def back(self) -> None:
        """Begins the copy to the device."""
        if self.room is not None:
            whole, self.copy = self.device.page_in(self.room, self.tensor.new_empty(0))
            self.tensor.data = whole.as_strided(self.shape, self.stride)
            self.room = None

    def ready(self) -> None:
        """Computing waits for the copy to the device."""
        if self.copy is not None:
            self.copy.join()
            self.copy = None


def _weights(parameters: Iterable[torch.Tensor]) -> list[Weight]:
    return [weight for p in parameters if (weight := weight_of(p)) is not None]


def _given(optimizer: torch.optim.Optimizer) -> list[Weight]:
    return _weights(p for group in optimizer.param_groups for p in group["params"])


def before_step(optimizer: torch.optim.Optimizer, begins: Callable[[], None]) -> None:
    """Has all of an optimizer's paged parameters in memory, unless it steps in buckets.

    Args:
        begins: called once for each step, not for each bucket's.
    """
    paged = _paged.get(optimizer)
    if paged is None or not paged.inside:
        begins()
    if paged is None:
        _arrive(_given(optimizer))


def after_step(optimizer: torch.optim.Optimizer) -> None:
    """Sends those out again that the next iteration does not begin with."""
    if optimizer not in _paged:
        _depart(weights := _given(optimizer))
        _gone(weights)


def _arrive(weights: list[Weight]) -> None:
    for weight in weights:
        weight.page_in()
    for weight in weights:
        weight.ready()
        weight.watch(False)  # optimizers treat a class that they do not know otherwise


def _depart(weights: list[Weight]) -> None:
    for weight in weights:
        weight.watch(True)
        weight.changed()
        if not weight.owner.stays(weight):
            weight.page_out()


def _gone(weights: list[Weight]) -> None:
    for weight in weights:
        if not weight.owner.stays(weight) and not weight.held:
            weight.release()


#: Those that step in buckets.
_paged: weakref.WeakKeyDictionary[torch.optim.Optimizer, PagedOptimizer] = (
    weakref.WeakKeyDictionary()
)


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
        bucket: int | float | str = "256MiB",
        smallest: int | float | str = "64KiB",
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
        self._pages: dict[torch.Tensor, list[_Page]] = {}
        self._groups: list[list[torch.Tensor]] = []
        self.inside = False
        self._hooks = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
            optimizer.register_state_dict_pre_hook(lambda _: self.bring_back()),
        ]
        self._last: list[torch.Tensor] = []
        _paged[optimizer] = self

    @torch.no_grad()
    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Steps all buckets but the last, which the step that follows is for."""
        if self.inside:
            return
        if (args and args[-1] is not None and callable(args[-1])) or kwargs.get("closure"):
            raise LMSError("an optimizer with paged state takes no closure: step once per call")
        buckets = self._buckets()
        self._groups = [group["params"] for group in optimizer.param_groups]
        self._fetch(buckets[0])
        self.inside = True
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
                        self._settle(buckets[number - 1])
        except BaseException:
            self._restrict(None)
            raise
        finally:
            self.inside = False
        self._last = buckets[-1]
        if len(buckets) > 1:
            self._settle(buckets[-2])

    @torch.no_grad()
    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Sends the last bucket's state out."""
        if not self.inside:
            self._restrict(None)
            self._send(self._last)
            self._settle(self._last)

    def _buckets(self) -> list[list[torch.Tensor]]:
        """Parameters in order, about `bucket` bytes at a time; at least one list."""
        buckets: list[list[torch.Tensor]] = [[]]
        size = 0
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                nbytes = parameter.numel() * parameter.element_size()
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
        for parameter in parameters:
            for page in self._pages.get(parameter, ()):
                page.back()
        with self.device.aside():
            for weight in _weights(parameters):
                weight.page_in()

    def _ready(self, parameters: list[torch.Tensor]) -> None:
        for parameter in parameters:
            for page in self._pages.pop(parameter, ()):
                page.ready()
        with self.device.aside():
            _arrive(_weights(parameters))

    def _send(self, parameters: list[torch.Tensor]) -> None:
        with self.device.aside():
            for parameter in parameters:
                pages = [
                    _Page(self.device, tensor)
                    for tensor in self.optimizer.state.get(parameter, {}).values()
                    if isinstance(tensor, torch.Tensor)
                    and tensor.numel() * tensor.element_size() >= self.smallest
                    and self.device.owns(tensor)
                ]
                for page in pages:
                    page.out()
                self._pages[parameter] = pages
            _depart(_weights(parameters))

    def _settle(self, parameters: list[torch.Tensor]) -> None:
        with self.device.aside():
            for parameter in parameters:
                for page in self._pages.get(parameter, ()):
                    page.settle()
            _gone(_weights(parameters))

    @torch.no_grad()
    def bring_back(self) -> None:
        """All state to the device again, as for a checkpoint."""
        for pages in self._pages.values():
            for page in pages:
                page.settle()
                page.back()
                page.ready()
        self._pages.clear()

    def remove(self) -> None:
        """Brings the state back and leaves the optimizer alone from now on."""
        self.bring_back()
        _paged.pop(self.optimizer, None)
        for hook in self._hooks:
            hook.remove()
