"""One rank: each case trains twice, without LMS and under it, and must end with the same weights.

Usage: ranks.py BACKEND RESULTS; RANK, WORLD_SIZE and the way to the others are in the environment.
Rank r writes the names of the cases that it passed to RESULTS/r.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import lms
import torch
import torch.distributed as dist
from models import SPEED, batch, mlp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS = 5
#: A bus so slow that copies cannot hide.
SLOW = lms.Speed(arithmetic=2e12, memory=200e9, d2h=10e9, h2d=10e9, launch=1e-6)
CASES: list[Callable[[], None]] = []


@dataclass
class Trained:
    """What a training gave: full weights, bytes at the highest, the report."""

    weights: list[Tensor]
    peak: int
    report: lms.Report | None


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES.append(function)
    return function


def rows(count: int) -> Tensor:
    """Another batch on each rank."""
    return batch(count * dist.get_world_size()).chunk(dist.get_world_size())[dist.get_rank()]


def train(
    make: Callable[[], nn.Module],
    limit: int | None = None,
    parts: int = 1,
    page: str = "",
    again: bool = False,
    operations: bool = False,
) -> Trained:
    """Trains some steps, each of some micro-batches of which only the last is reduced.

    Args:
        page: "" for nothing, "state" for the optimizer's, "all" for the parameters too.
        again: whether LMS may compute layers again, on a slow bus; `operations` likewise.
    """
    device = lms.SimulatedDevice("64GiB", SLOW if again or operations else SPEED)
    model, data = make(), rows(4 if page else 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if page:
        lms.page_optimizer(optimizer, bucket="64KiB", smallest=1024, device=device)
    if page == "all":
        paged = lms.page_parameters(model, smallest=1024)
    recomputed = lms.recompute(model) if again and limit else None
    under = (
        lms.LMS(limit, smallest=1024, device=device, recompute_operations=operations)
        if limit
        else nullcontext()
    )
    with device, under as support:
        for _ in range(3 * STEPS if again else STEPS):
            optimizer.zero_grad()
            for number, part in enumerate(data.chunk(parts)):
                alone = number + 1 < parts and isinstance(model, DistributedDataParallel)
                with model.no_sync() if alone else nullcontext():
                    model(part).square().mean().backward()
            optimizer.step()
        peak, report = device.highest, support.report() if support else None
    if page == "all":
        lms.keep_parameters(paged)
    if recomputed:
        recomputed.remove()
    weights = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return Trained([w.detach().clone() for w in weights], peak, report)


def compare(
    make: Callable[[], nn.Module],
    share: float = 0.7,
    parts: int = 1,
    page: bool = False,
    again: bool = False,
    operations: bool = False,
) -> lms.Report:
    """The same weights, on all ranks; below the limit, which parameters must leave for if paged."""
    plain = train(
        make, parts=parts, page="state" if page else "", again=again, operations=operations
    )
    limit = int(share * plain.peak)
    under = train(make, limit, parts, "all" if page else "", again, operations)
    assert all(map(torch.equal, plain.weights, under.weights)), "other weights than without LMS"
    for weight in under.weights:
        first = weight.clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, weight), "other weights than on rank 0"
    assert under.peak <= limit, f"{under.peak - limit} bytes above the limit"
    assert under.report is not None
    assert under.report.moved > 0 or page or under.report.operations > 0
    return under.report


@case
def ddp() -> None:
    compare(lambda: DistributedDataParallel(mlp()))


@case
def ddp_with_gradients_in_buckets() -> None:
    compare(lambda: DistributedDataParallel(mlp(), gradient_as_bucket_view=True))


@case
def ddp_static_graph() -> None:
    compare(lambda: DistributedDataParallel(mlp(), static_graph=True))


@case
def ddp_with_accumulation() -> None:
    compare(lambda: DistributedDataParallel(mlp()), 0.8, parts=3)


@case
def ddp_with_paged_parameters() -> None:
    for view in (False, True):
        report = compare(
            lambda v=view: DistributedDataParallel(mlp(), gradient_as_bucket_view=v),
            0.9,
            page=True,
        )
        assert report.paged > 0


def layered() -> nn.Sequential:
    """The network in layers of several operations."""
    parts = list(mlp())
    return nn.Sequential(*(nn.Sequential(*parts[n : n + 5]) for n in range(0, len(parts), 5)))


@case
def ddp_computing_layers_again() -> None:
    report = compare(lambda: DistributedDataParallel(layered()), again=True)
    assert report.again


@case
def sharded_layers_are_refused() -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(*(fully_shard(nn.Linear(8, 8), mesh=mesh) for _ in range(2)))
    try:
        lms.recompute(model)
    except lms.LMSError as error:
        assert "has parameters that are sharded" in str(error), error  # noqa: PT017
    else:
        raise AssertionError("was not refused")


@case
def fsdp() -> None:
    compare(sharded)


@case
def fsdp_and_operations_that_are_computed_again() -> None:
    assert compare(sharded, operations=True).operations > 0


def sharded() -> nn.Module:
    """Each linear layer's parameters are in memory while it runs."""
    model = mlp()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Exchanging(nn.Module):
    """Each layer multiplies by the sum of all ranks' results, as they come to be in place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 64) to the same."""
        for layer in self.layers:
            x = torch.tanh(layer(x))
            everywhere = x.detach() * 0.5
            dist.all_reduce(everywhere)
            x = x * everywhere
        return x


@case
def sums_over_ranks_in_forward_are_not_computed_again() -> None:
    # The thread that reduces holds a gradient for a moment longer, now and then: 17 KiB. At .7 a
    # plan has been full to less than that, and the simulated device reclaims nothing.
    report = compare(lambda: DistributedDataParallel(Exchanging()), 0.8, operations=True)
    assert report.operations > 0


@case
def parameters_of_fsdp_are_refused() -> None:
    model = fully_shard(mlp(2), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    try:
        lms.page_parameters(model, smallest=1024)
    except lms.LMSError as error:
        assert "it is a DTensor" in str(error), error  # noqa: PT017
    else:
        raise AssertionError("was not refused")


def main() -> None:
    backend, folder = sys.argv[1:]
    dist.init_process_group(backend, timeout=timedelta(seconds=300))
    torch.set_num_threads(1)
    passed = []
    try:
        for function in CASES:
            function()
            passed.append(function.__name__)
    finally:
        (Path(folder) / os.environ["RANK"]).write_text("\n".join(passed))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
