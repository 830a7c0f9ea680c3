"""Run by ddlrun: what the cases of recipes/horovod/tests leave out of Horovod's GPU operations.

Values are whole numbers that each rank knows of every other, so that sums are exact.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from horovod import torch as hvd
from torch import Tensor, nn

REDUCED = (
    *(torch.uint8, torch.int8, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
SIZES = range(7, 27)  # in bytes, few are a multiple of the 16 that a fused tensor is padded to
CASES: list[Callable[[], None]] = []


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES.append(function)
    return function


def given(rank: int, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return ((torch.arange(count) * 5 + 3 * rank + count) % 7 + 1).to(dtype)


def everyone(count: int) -> Tensor:
    return torch.stack([given(rank, count, torch.float64) for rank in range(hvd.size())])


def same(out: Tensor, expected: Tensor, what: object) -> None:
    assert out.is_cuda, what
    assert torch.equal(out.cpu().double(), expected), (what, out.cpu(), expected)


@case
def what_was_built() -> None:
    assert hvd.cuda_built()
    assert hvd.ddl_built()
    assert hvd.nccl_built() > 20000


@case
def fused_tensors_of_odd_sizes() -> None:
    for turn in range(3):
        for dtype in REDUCED:
            handles = [
                hvd.allreduce_async(
                    given(hvd.rank(), size, dtype).cuda(), op=hvd.Sum, name=f"fused.{dtype}.{size}"
                )
                for size in SIZES
            ]
            for size, handle in zip(SIZES, handles, strict=True):
                same(hvd.synchronize(handle), everyone(size).sum(0), (turn, dtype, size))


@case
def more_tensors_than_one_launch_copies() -> None:
    values = [given(hvd.rank(), 1 + i % 9).cuda() for i in range(200)]
    for i, out in enumerate(hvd.grouped_allreduce(values, op=hvd.Sum, name="many")):
        same(out, everyone(1 + i % 9).sum(0), i)


@case
def scaled_as_on_a_cpu() -> None:
    """A third, which no type has exactly; odd starts, of which a pair of float16 is none."""
    for dtype in REDUCED:
        for start in (0, 1):
            inputs = [given(hvd.rank(), size, dtype) for size in (40, 33)]
            groups = [
                hvd.grouped_allreduce(
                    [value.to(device)[start:] for value in inputs],
                    op=hvd.Sum,
                    prescale_factor=1 / 3 if dtype.is_floating_point else 3.0,
                    postscale_factor=2.0 if dtype.is_floating_point else 1 / 3,
                    name=f"scaled.{dtype}.{start}.{device}",
                )
                for device in ("cuda", "cpu")
            ]
            for out, expected in zip(*groups, strict=True):
                same(out, expected.double(), (dtype, start))


@case
def averages_of_integers_are_divided() -> None:
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64):
        value = torch.full((49,), 49, dtype=dtype, device="cuda")
        outputs = hvd.grouped_allreduce(
            [value, value[1:]], op=hvd.Sum, prescale_factor=1 / 49, name=f"divided.{dtype}"
        )
        for out in outputs:
            same(out, torch.full(out.shape, float(hvd.size()), dtype=torch.float64), dtype)


@case
def adasum_averages_within_a_host() -> None:
    """Between hosts it is Adasum; several tensors at once are not padded."""
    values = [given(hvd.rank(), size).cuda() for size in SIZES]
    for size, out in zip(
        SIZES, hvd.grouped_allreduce(values, op=hvd.Adasum, name="adasum"), strict=True
    ):
        same(out, everyone(size).mean(0), size)


@case
def tensors_of_both_devices_at_once() -> None:
    handles = {
        (turn, device): hvd.allreduce_async(
            given(hvd.rank(), 1001 + turn).to(device), op=hvd.Sum, name=f"both.{turn}.{device}"
        )
        for turn in range(5)
        for device in ("cpu", "cuda")
    }
    for (turn, device), handle in handles.items():
        out = hvd.synchronize(handle)
        assert out.device.type == device
        assert torch.equal(out.cpu().double(), everyone(1001 + turn).sum(0)), (turn, device)


@case
def results_are_ready_for_every_stream() -> None:
    """The input is made in a stream of its own, and the output is used in another."""
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    for turn in range(5):
        with torch.cuda.stream(one):
            value = given(hvd.rank(), 513).cuda() + turn
            out = hvd.allreduce(value, op=hvd.Sum, name=f"ready.{turn}")
        with torch.cuda.stream(two):
            twice = out * 2
        torch.cuda.synchronize()
        same(twice, 2 * (everyone(513).sum(0) + turn * hvd.size()), turn)


def train(device: str) -> list[Tensor]:
    torch.manual_seed(hvd.rank())  # the broadcast makes the weights the same
    net = nn.Sequential(nn.Linear(13, 17), nn.GELU(), nn.Linear(17, 5), nn.Linear(5, 3)).to(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
        named_parameters=[(f"{device}.{name}", one) for name, one in net.named_parameters()],
    )
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    generator = torch.Generator().manual_seed(100 + hvd.rank())
    for _ in range(4):
        data = torch.randn(8, 13, generator=generator).to(device)
        labels = torch.randint(3, (8,), generator=generator).to(device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(data), labels).backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in net.parameters()]


@case
def training_has_the_bits_of_the_cpu() -> None:
    there, here = train("cuda"), train("cpu")
    for one, other in zip(there, here, strict=True):
        assert torch.equal(one, other)
    for others in hvd.allgather_object(there):
        assert all(map(torch.equal, others, there))


def main() -> None:
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    chosen = sys.argv[1:]
    for function in CASES:
        if not chosen or function.__name__ in chosen:
            function()
    hvd.shutdown()
    print("all well")


if __name__ == "__main__":
    main()
