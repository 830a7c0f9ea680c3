"""Switching LMS on and off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from lms.engine import Engine
from lms.errors import LimitError, LMSError
from lms.hooks.optimizer_steps import after_step, before_step
from lms.hooks.recomputed_layers import RecomputedLayers, registered
from lms.paging.device import Device
from lms.paging.optimizer_state import PagedOptimizer
from lms.paging.paged_model import PagedModel
from lms.report import Report
from lms.sizes import DEFAULT_SMALLEST, Size, parse_size, size_text

_current: LMS | None = None
_paged_models: list[PagedModel] = []


class LMS:
    """Large Model Support for the code inside: `with LMS(limit="12GiB"): train()`.

    Args:
        limit: bytes on the device for all of the program. When it is None: 95% of the memory that
            is free or torch's already (`DEFAULT_SHARE` in sizes.py).
        smallest: storages of fewer bytes always stay.
        device: the current CUDA device when it is None.
        recompute_operations: whether LMS may compute single operations again in backward instead of
            moving their results, where that is faster.

    Raises:
        LimitError: a size makes no sense, or the limit is above what the device has.
        LMSError: there is no GPU; or, on entering, LMS is on already.
    """

    def __init__(
        self,
        limit: Size | None = None,
        *,
        smallest: Size = DEFAULT_SMALLEST,
        device: Device | None = None,
        recompute_operations: bool = False,
    ) -> None:
        self.recompute_operations = recompute_operations
        self.limit = None if limit is None else parse_size(limit)
        self.smallest = parse_size(smallest, "smallest")
        if self.limit is not None and self.limit < self.smallest:
            raise LimitError(
                f"limit is {self.limit} bytes, less than one storage that may move "
                f'({size_text(self.smallest)}); give bytes, or a unit: "12GiB"'
            )
        self.device = device or cuda_device()
        self.engine: Engine | None = None
        self._hooks: Any = None
        self._steps: list[Any] = []

    def __enter__(self) -> Self:
        global _current
        if _current is not None:
            raise LMSError(
                "LMS is on already; switch it off first: lms.disable(), or leave its `with`"
            )
        limit = self.limit or self.device.capacity()
        self.engine = engine = Engine(self.device, limit, self.smallest, self.recompute_operations)
        self._hooks = torch.autograd.graph.saved_tensors_hooks(engine.pack, engine.unpack)
        self._hooks.__enter__()
        if engine.operations is not None:
            engine.operations.__enter__()
        self._steps = [
            register_optimizer_step_pre_hook(lambda *_: engine.step_begins()),
            register_optimizer_step_pre_hook(lambda optimizer, *_: before_step(optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, *_: after_step(optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, *_: engine.stepped(optimizer)),
        ]
        _current = self
        try:
            for paged in _paged_models:
                paged.attach(engine)
            for recomputed in registered:
                engine.add_layers(recomputed.layers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        global _current
        if _current is not self:
            return  # `disable` has switched it off inside its `with`
        assert self.engine is not None
        _current = None
        if self.engine.operations is not None:
            self.engine.operations.__exit__(kind, error, trace)
        self._hooks.__exit__(kind, error, trace)
        for step in self._steps:
            step.remove()
        self.device.uncap()
        for paged in _paged_models:
            paged.detach()
        self.engine.layers.detach()
        plannable = self.engine.learning or self.engine.host_full is not None
        if isinstance(error, torch.OutOfMemoryError) and plannable:
            raise self.engine.no_plan_after(error) from error
        if error is None and self.engine.operations is not None:
            self.engine.operations.restore_all()

    def report(self) -> Report:
        """The plan that LMS has made, and measurements.

        Raises:
            LMSError: no iteration has been learned yet.
        """
        if self.engine is None:
            raise LMSError("there is nothing to report: LMS has not been on yet")
        return Report.of(self.engine)


def cuda_device() -> Device:
    """The current CUDA device.

    Raises:
        LMSError: there is no GPU.
    """
    if not torch.cuda.is_available():
        raise LMSError(
            "torch sees no GPU, so there is no memory to save; to try LMS without one, give it "
            "device=lms.SimulatedDevice(...)"
        )
    from lms.devices.cuda import CudaDevice

    return CudaDevice()


def enable(
    limit: Size | None = None,
    *,
    smallest: Size = DEFAULT_SMALLEST,
    device: Device | None = None,
    recompute_operations: bool = False,
) -> LMS:
    """Switches LMS on for this thread until `disable`. Arguments and errors as for `LMS`."""
    support = LMS(
        limit, smallest=smallest, device=device, recompute_operations=recompute_operations
    )
    return support.__enter__()


def disable() -> None:
    """Switches LMS off. Tensors that are saved for a backward to come are still served.

    Raises:
        LMSError: it is not on.
    """
    current().__exit__()


def current() -> LMS:
    """The LMS that is on.

    Raises:
        LMSError: none is.
    """
    if _current is None:
        raise LMSError("LMS is not on; switch it on with lms.enable()")
    return _current


def report() -> Report:
    """The report of the LMS that is on.

    Raises:
        LMSError: none is on, or no iteration has been learned yet.
    """
    return current().report()


def page_parameters(model: torch.nn.Module, *, smallest: Size = DEFAULT_SMALLEST) -> PagedModel:
    """Lets LMS page a model's parameters around their use; see `lms.paging.paged_parameter`.

    The planner moves them only where moving saved tensors does not suffice.

    Args:
        smallest: parameters of fewer bytes stay.

    Raises:
        LMSError: the model is compiled, or a parameter is elsewhere or of another kind.
        LimitError: a size makes no sense.
    """
    paged = PagedModel(model, smallest)
    if _current is not None and _current.engine is not None:
        paged.attach(_current.engine)
    _paged_models.append(paged)
    return paged


@contextmanager
def forget_new_models() -> Iterator[None]:
    """Parameters that are paged inside, of models that end with it, are forgotten; not fetched."""
    before = list(_paged_models)
    try:
        yield
    finally:
        for paged in _paged_models:
            if paged not in before:
                paged.detach(keep=False)
        _paged_models[:] = before


def keep_parameters(paged: PagedModel) -> None:
    """Ends `page_parameters`: the parameters come back and stay."""
    paged.detach()
    _paged_models.remove(paged)


def recompute(layers: torch.nn.Module | Iterable[torch.nn.Module]) -> RecomputedLayers:
    """Lets LMS compute layers again in backward where that is faster than moving their tensors.

    Once it knows an iteration, it chooses the layers by the planner's prediction, none if that is
    no faster; `report()` says which. Numbers stay the same to the bit, and so do the statistics of
    normalisations. Layers that change other buffers are left alone; a layer must not do anything
    else in its forward that counts.

    Args:
        layers: a model, of which the items of its ModuleLists and Sequentials are taken, or a list
            of layers.

    Returns:
        An object whose `remove()` ends it.

    Raises:
        LMSError: there are none, or one is compiled, inside another, or given twice.
    """
    recomputed = RecomputedLayers(layers)
    if _current is not None and _current.engine is not None:
        _current.engine.add_layers(recomputed.layers)
    return recomputed


def page_optimizer(
    optimizer: torch.optim.Optimizer,
    *,
    bucket: Size = "256MiB",
    smallest: Size = "64KiB",
    device: Device | None = None,
) -> PagedOptimizer:
    """Keeps an optimizer's state on the host between steps; see `lms.paging.optimizer_state`.

    Args:
        bucket: bytes of parameters that are stepped at a time.
        smallest: tensors of fewer bytes stay.
        device: that of the LMS that is on, or the current CUDA device, when it is None.

    Raises:
        LMSError: the optimizer does not treat every parameter by itself, or there is no GPU.
        LimitError: a size makes no sense.
    """
    if device is None:
        device = _current.device if _current is not None else cuda_device()
    return PagedOptimizer(optimizer, device, bucket, smallest)
