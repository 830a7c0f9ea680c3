"""Every operation once on every rank, with its result checked; HOROVOD_TIMELINE says by whom."""

import horovod.torch as hvd
import torch


def main() -> None:
    """Ends with exit code 0 and a line on each rank if all results are right."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    total = size * (size + 1) // 2

    ones = torch.full((6,), float(rank + 1))
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
        reduced = hvd.allreduce(ones.to(dtype), op=hvd.Sum, name=f"sum {dtype}")
        assert reduced.dtype == dtype
        assert reduced.tolist() == [total] * 6
    assert hvd.allreduce(ones, name="average").tolist() == [total / size] * 6

    rows = hvd.allgather(torch.full((2, 3), rank), name="same rows")
    assert rows.tolist() == [[r] * 3 for r in range(size) for _ in range(2)]
    rows = hvd.allgather(torch.full((rank + 1,), rank), name="other rows")
    assert rows.tolist() == [r for r in range(size) for _ in range(r + 1)]

    assert hvd.broadcast(ones, root_rank=size - 1, name="root").tolist() == [size] * 6
    exchanged = hvd.alltoall(torch.arange(size) + 10 * rank, name="exchange")
    assert exchanged.tolist() == [10 * r + rank for r in range(size)]

    block = hvd.reducescatter(torch.arange(2.0 * size), op=hvd.Sum, name="same blocks")
    assert block.tolist() == [size * (2.0 * rank + i) for i in range(2)]
    # One row more than ranks: the first rank gets two.
    block = hvd.reducescatter(torch.ones(size + 1), op=hvd.Sum, name="other blocks")
    assert block.tolist() == [size] * (2 if rank == 0 else 1)

    print(f"rank {rank} of {size} is content", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
