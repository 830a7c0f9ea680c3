"""The paged parameters of an optimizer around its step."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lms.paging.optimizer_state import bring_in, copy_out, paged_optimizer, release
from lms.paging.paged_parameter import PagedParameter, paged_among


def _paged_parameters(optimizer: torch.optim.Optimizer) -> list[PagedParameter]:
    return paged_among(p for group in optimizer.param_groups for p in group["params"])


def before_step(optimizer: torch.optim.Optimizer, begin: Callable[[], None]) -> None:
    """Has all of an optimizer's paged parameters in memory, unless it steps in buckets.

    Args:
        begin: called once for each step, not for each bucket's.
    """
    paged = paged_optimizer(optimizer)
    if paged is None or not paged.stepping:
        begin()
    if paged is None:
        bring_in(_paged_parameters(optimizer))


def after_step(optimizer: torch.optim.Optimizer) -> None:
    """Sends those out again that the next iteration does not begin with."""
    if paged_optimizer(optimizer) is None:
        parameters = _paged_parameters(optimizer)
        copy_out(parameters)
        release(parameters)
