"""Run by ddlrun: the operations on CUDA tensors, on every rank, against an oracle.

Rank r uses GPU r modulo the number of GPUs.
"""

from datetime import timedelta

import torch
import torch.distributed as dist
from harness import (
    FLOATS,
    NUMBERS,
    RANK,
    REDUCTIONS,
    SIZE,
    SIZES,
    SMALL,
    everyone,
    given,
    oracle,
    refused,
    same,
)
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

GPU = torch.device("cuda", RANK % torch.cuda.device_count())


def on_gpu(tensor: Tensor) -> Tensor:
    return tensor.to(GPU)


def is_there(result: Tensor, expected: Tensor) -> None:
    assert result.device == GPU, result.device
    same(result.cpu(), expected)


def reductions() -> None:
    for dtype in [*NUMBERS, *SMALL]:
        for size in SIZES:
            for op in REDUCTIONS:
                tensor = on_gpu(given(RANK, size, dtype=dtype))
                dist.all_reduce(tensor, op)
                is_there(tensor, oracle(everyone(size, dtype=dtype), op))
    for dtype in FLOATS:
        tensor = on_gpu(given(RANK, 1000, dtype=dtype))
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        wanted = everyone(1000, dtype=dtype).double().mean(0)
        limit = (SIZE + 2) * torch.finfo(dtype).eps
        torch.testing.assert_close(tensor.cpu().double(), wanted, rtol=limit, atol=0)
    blocks = on_gpu(torch.cat([given(RANK, 500) + block for block in range(SIZE)]))
    mine = torch.empty(500, device=GPU)
    dist.reduce_scatter_tensor(mine, blocks)
    is_there(mine, everyone(500).sum(0) + RANK * SIZE)
    strided = on_gpu(given(RANK, 40, 30)).t()
    dist.all_reduce(strided)
    is_there(strided, everyone(40, 30).sum(0).t())


def movement() -> None:
    for size in SIZES:
        rows = everyone(size)
        every = torch.empty(SIZE * size, device=GPU)
        dist.all_gather_into_tensor(every, on_gpu(rows[RANK]))
        is_there(every, rows.flatten())
        for root in range(SIZE):
            tensor = on_gpu(rows[RANK])
            dist.broadcast(tensor, root)
            is_there(tensor, rows[root])
            parts = [torch.empty(size, device=GPU) for _ in range(SIZE)]
            dist.gather(on_gpu(rows[RANK]), parts if root == RANK else None, root)
            if root == RANK:
                for part, row in zip(parts, rows, strict=True):
                    is_there(part, row)
            dist.scatter(tensor, list(on_gpu(rows)) if root == RANK else None, root)
            is_there(tensor, rows[RANK])
    source = on_gpu(torch.arange(SIZE, dtype=torch.float32) + 100 * RANK)
    target = torch.empty(SIZE, device=GPU)
    dist.all_to_all_single(target, source)
    is_there(target, torch.arange(SIZE) * 100.0 + RANK)
    if SIZE > 1 and RANK < 2:
        received = torch.zeros(77, device=GPU)
        work = dist.isend(on_gpu(given(RANK, 77)), 1 - RANK)
        dist.recv(received, 1 - RANK)
        work.wait()
        is_there(received, given(1 - RANK, 77))


def order_with_streams() -> None:
    big = torch.randn(4096, 4096, device=GPU)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            tensor = torch.zeros(1 << 20, device=GPU)
            for _ in range(30):
                big = big @ big
                big /= big.norm()
            tensor.fill_(1)
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            is_there(tensor.clone(), torch.full((1 << 20,), float(SIZE)))


def futures() -> None:
    tensor = on_gpu(given(RANK, 1000))
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda done: done.value()[0] * 2)
    is_there(doubled.wait(), everyone(1000).sum(0) * 2)
    tensors = [on_gpu(given(RANK, n)) for n in (5, 50)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for each in tensors:
            dist.all_reduce(each)
    manager.wait()
    for each in tensors:
        is_there(each, everyone(each.numel()).sum(0))


def training() -> None:
    """DDP on GPUs learns what one process with all the data learns."""
    torch.manual_seed(0)
    alone = nn.Linear(16, 4).double()
    shared = DistributedDataParallel(nn.Linear(16, 4).double().to(GPU))
    shared.module.load_state_dict(alone.state_dict())
    data = torch.stack(
        [torch.randn(8, 16, generator=torch.Generator().manual_seed(rank)) for rank in range(SIZE)]
    ).double()
    for model, batch in ((alone, data.flatten(0, 1)), (shared, data[RANK].to(GPU))):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    for ours, theirs in zip(shared.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


def refusals() -> None:
    tensors = [torch.ones(4), torch.ones(4, device=GPU)]
    refused(lambda: dist.all_gather_into_tensor(torch.ones(4 * SIZE), tensors[1]), "one device")
    dist.all_reduce(tensors[0])  # the CPU as before
    same(tensors[0], torch.full((4,), float(SIZE)))


if __name__ == "__main__":
    torch.cuda.set_device(GPU)
    dist.init_process_group("ddl", timeout=timedelta(seconds=120))
    for check in (reductions, movement, order_with_streams, futures, training, refusals):
        check()
        dist.barrier()
    dist.destroy_process_group()
    print("all well", flush=True)
