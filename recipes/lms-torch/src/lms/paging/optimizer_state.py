"""Paging of an optimizer's state: on the host while forward and backward need the memory.

    paged = lms.page_optimizer(optimizer)

Before `step()` the state comes back, bucket by bucket: each bucket of parameters is stepped by
itself while the next one's state is on its way and the last one's leaves. This gives the same bits
only where an optimizer treats every parameter by itself; others are refused.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from lms.errors import HostMemoryError, LMSError
from lms.paging.device import Device
from lms.paging.paged_parameter import PagedParameter, paged_among
from lms.paging.state_on_host import Arrival, Departure, StateOnHost, can_leave
from lms.paging.tensors import nbytes_of
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


#: Optimizers whose state is paged. Their hooks keep the paging alive, and nothing else may.
_by_optimizer: weakref.WeakKeyDictionary[
    torch.optim.Optimizer, weakref.ReferenceType[PagedOptimizer]
] = weakref.WeakKeyDictionary()


def has_paged_state(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer's state is paged: it then brings in paged parameters itself."""
    return optimizer in _by_optimizer


#: The parameters of one bucket, with the group that each of them is in.
Bucket = list[tuple[dict[str, Any], list[torch.Tensor]]]


class PagedOptimizer:
    """Keeps an optimizer's state on the host between its steps.

    A step takes one bucket of parameters after the other. If it ends by an exception between two of
    them, the optimizer is torn: it refuses further steps and its `state_dict()`, until
    `load_state_dict()` has made it whole.

    Args:
        optimizer: one of torch's that treat every parameter by itself.
        bucket: bytes of parameters that are stepped at a time.
        smallest: tensors of fewer bytes stay.

    Raises:
        LMSError: the optimizer is of another kind, or paged already.
        LimitError: a size makes no sense.
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
        if has_paged_state(optimizer):
            raise LMSError(
                f"the state of this {type(optimizer).__name__} is paged already; to page it "
                "otherwise, call remove() of what lms.page_optimizer returned"
            )
        self.optimizer, self.device = optimizer, device
        self.bucket = parse_size(bucket, "bucket")
        self.smallest = parse_size(smallest, "smallest")
        self._torn = ""
        self._told = False
        self._on_the_way: dict[tuple[torch.Tensor, str], Arrival | Departure] = {}
        self._stand_in = _stand_in(optimizer, self._groups_in_turn)
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_state_dict_pre_hook(lambda _: self._refuse_if_torn()),
            optimizer.register_state_dict_post_hook(self._copy_to_host),
            optimizer.register_load_state_dict_post_hook(self._loaded),
        ]
        _by_optimizer[optimizer] = weakref.ref(self)

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any
    ) -> tuple[tuple[Any, ...], Any]:
        """Has the step that follows take its groups from `_groups_in_turn`."""
        if any(one is not None for one in (*args[1:], *kwargs.values())):
            raise LMSError("an optimizer with paged state takes no closure: step once per call")
        self._refuse_if_torn()
        return (self._stand_in,), {}

    def _refuse_if_torn(self) -> None:
        if self._torn:
            raise LMSError(self._torn)

    def _groups_in_turn(self) -> Iterator[dict[str, Any]]:
        """The groups of a step, bucket by bucket, each while its state is on the device."""
        buckets = self._buckets()
        parts, stepped = sum(map(len, buckets)), 0
        before = _Before([], {})
        try:
            self._fetch(buckets[0])
            for number, bucket in enumerate(buckets):
                self._ready(bucket)
                if number + 1 < len(buckets):
                    self._fetch(buckets[number + 1])
                for group, parameters in bucket:
                    before = _Before(parameters, self.optimizer.state)
                    yield {**group, "params": parameters}
                    stepped += 1
                self._send(bucket)
                if number:
                    self._release(buckets[number - 1])
            self._release(buckets[-1])
        except BaseException:
            # The step's own exception closes this generator, at its yield.
            if not stepped and not before.changed:
                before.forget_new_state()
            elif stepped < parts:
                self._torn = (
                    f"a step of this {type(self.optimizer).__name__} ended by an exception after "
                    f"{stepped} of {parts} parts, and its parameters are of two steps now: load "
                    "model and optimizer from a checkpoint to go on"
                )
            self._give_up(buckets)
            raise

    def _buckets(self) -> list[Bucket]:
        """Parameters in order, about `bucket` bytes at a time; at least one bucket.

        Those with sparse gradients come first: optimizers that refuse these do so before they
        change anything.
        """
        buckets: list[Bucket] = [[]]
        size = 0
        for group in self.optimizer.param_groups:
            part: list[torch.Tensor] = []
            buckets[-1].append((group, part))
            for parameter in group["params"]:
                nbytes = nbytes_of(parameter)
                if size and size + nbytes > self.bucket:
                    part, size = [], 0
                    buckets.append([(group, part)])
                part.append(parameter)
                size += nbytes
        for bucket in buckets:
            bucket.sort(key=lambda part: not _has_sparse_gradients([part]))
        return sorted(buckets, key=lambda bucket: not _has_sparse_gradients(bucket))

    def _state_of(self, parameters: Iterable[torch.Tensor]) -> list[tuple[torch.Tensor, str, Any]]:
        """The state of some parameters: of each entry the parameter, the name and the value."""
        return [
            (parameter, name, value)
            for parameter in parameters
            for name, value in self.optimizer.state.get(parameter, {}).items()
        ]

    # -- a bucket's way to the device and back

    @torch.no_grad()
    def _fetch(self, bucket: Bucket) -> None:
        """Begins the copies of a bucket to the device."""
        with self.device.aside():
            for parameter, name, value in self._state_of(_parameters(bucket)):
                if isinstance(value, StateOnHost):
                    self._on_the_way[parameter, name] = Arrival(value)
            for paged in paged_among(_parameters(bucket)):
                paged.page_in()

    @torch.no_grad()
    def _ready(self, bucket: Bucket) -> None:
        """Computing waits until a bucket is on the device."""
        with self.device.aside():
            self._arrive(bucket)
            bring_in(paged_among(_parameters(bucket)))

    @torch.no_grad()
    def _send(self, bucket: Bucket) -> None:
        """Begins the copies of a bucket to the host."""
        with self.device.aside():
            for parameter, name, value in self._state_of(_parameters(bucket)):
                if can_leave(value, self.device, self.smallest):
                    self._depart(parameter, name, value)
            copy_out(paged_among(_parameters(bucket)))

    def _depart(self, parameter: torch.Tensor, name: str, value: torch.Tensor) -> None:
        """Begins a copy to the host; the tensor stays where that has no memory."""
        try:
            self._on_the_way[parameter, name] = Departure(self.device, value)
        except HostMemoryError as full:
            if not self._told:
                self._told = True
                warnings.warn(f"state stays on the device: {full}", RuntimeWarning, stacklevel=2)

    @torch.no_grad()
    def _release(self, bucket: Bucket) -> None:
        """Gives up a bucket's memory on the device."""
        with self.device.aside():
            self._arrive(bucket)
            release(paged_among(_parameters(bucket)))

    def _arrive(self, bucket: Bucket) -> None:
        """The state gets what has been on its way."""
        for parameter, name, _ in self._state_of(_parameters(bucket)):
            move = self._on_the_way.get((parameter, name))
            if move is not None:
                self.optimizer.state[parameter][name] = move.done()
                del self._on_the_way[parameter, name]

    @torch.no_grad()
    def _give_up(self, buckets: list[Bucket]) -> None:
        """A step has ended by an exception: all state stays where it is whole."""
        with self.device.aside():
            while self._on_the_way:
                _, move = self._on_the_way.popitem()
                move.give_up()
            for paged in paged_among(p for bucket in buckets for p in _parameters(bucket)):
                paged.mark_changed()
                paged.watch(True)

    # -- outside of steps

    def _copy_to_host(
        self, optimizer: torch.optim.Optimizer, packed: dict[str, Any]
    ) -> dict[str, Any]:
        """In a `state_dict`, copies on the host: all state at once need not fit on the device."""
        with self.device.aside():
            state = {
                key: {name: _on_host(value) for name, value in values.items()}
                for key, values in packed["state"].items()
            }
        return {**packed, "state": state}

    def _loaded(self, optimizer: torch.optim.Optimizer) -> None:
        """All state was replaced: it is whole, and leaves at once."""
        self._torn = ""
        bucket = [(group, group["params"]) for group in optimizer.param_groups]
        self._send(bucket)
        self._release(bucket)

    def bring_back(self) -> None:
        """All state to the device again."""
        everything = [p for group in self.optimizer.param_groups for p in group["params"]]
        for parameter, name, value in self._state_of(everything):
            if isinstance(value, StateOnHost):
                self.optimizer.state[parameter][name] = value.fetched()

    def remove(self) -> None:
        """Brings the state back and leaves the optimizer alone from now on."""
        self.bring_back()
        _by_optimizer.pop(self.optimizer, None)
        for hook in self._hooks:
            hook.remove()


class _Before:
    """Some parameters and their state before a step of them."""

    def __init__(self, parameters: list[torch.Tensor], state: dict[torch.Tensor, Any]) -> None:
        self._state = state
        self._new = [parameter for parameter in parameters if not state.get(parameter)]
        values = [value for parameter in parameters for value in state.get(parameter, {}).values()]
        tensors = [one for one in (*parameters, *values) if isinstance(one, torch.Tensor)]
        self._versions = [(tensor, tensor._version) for tensor in tensors]

    @property
    def changed(self) -> bool:
        """Whether the step has changed any of them."""
        return any(tensor._version != version for tensor, version in self._versions)

    def forget_new_state(self) -> None:
        """Takes back the state that the step was making: torch would take it for whole."""
        for parameter in self._new:
            self._state.pop(parameter, None)


def _parameters(bucket: Bucket) -> list[torch.Tensor]:
    return [parameter for _, parameters in bucket for parameter in parameters]


def _has_sparse_gradients(bucket: Bucket) -> bool:
    gradients = [parameter.grad for parameter in _parameters(bucket)]
    return any(one is not None and one.layout is not torch.strided for one in gradients)


def _on_host(value: Any) -> Any:
    if isinstance(value, StateOnHost):
        value = value.fetched()
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    return value


def _stand_in(
    optimizer: torch.optim.Optimizer, groups: Callable[[], Iterator[dict[str, Any]]]
) -> torch.optim.Optimizer:
    """An optimizer of the same kind, with the same attributes but for its groups.

    A step of it goes over `groups()`. The optimizer itself always has all of its parameters.
    """
    kind = type(optimizer)
    members: dict[str, Any] = {"param_groups": property(lambda _: groups())}
    for check in (
        "_accelerator_graph_capture_health_check",
        "_cuda_graph_capture_health_check",  # until torch 2.10
    ):
        if hasattr(kind, check):  # goes over the groups as well
            members[check] = lambda _, check=check: getattr(optimizer, check)()
    stand_in: torch.optim.Optimizer = object.__new__(type(kind.__name__, (kind,), members))
    stand_in.__dict__ = optimizer.__dict__
    return stand_in
