"""The paged parameters of an optimizer around its step."""

from __future__ import annotations

import torch

from lms.paging.optimizer_state import bring_in, copy_out, has_paged_state, release
from lms.paging.paged_parameter import PagedParameter, paged_among


def _paged_parameters(optimizer: torch.optim.Optimizer) -> list[PagedParameter]:
    return paged_among(p for group in optimizer.param_groups for p in group["params"])


def before_step(optimizer: torch.optim.Optimizer) -> None:
    """Has all of an optimizer's paged parameters in memory, unless it steps in buckets."""
    if not has_paged_state(optimizer):
        bring_in(_paged_parameters(optimizer))


def after_step(optimizer: torch.optim.Optimizer) -> None:
    """Sends those out again that the next iteration does not begin with."""
    if not has_paged_state(optimizer):
        parameters = _paged_parameters(optimizer)
        copy_out(parameters)
        release(parameters)
