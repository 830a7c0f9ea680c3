"""As the tutorial of writing distributed applications: Gloo by name, groups, a ring of messages."""

import os

import torch
import torch.distributed as dist
from numbers_of import told


def ring_allreduce(send: torch.Tensor, recv: torch.Tensor) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    send_buff, recv_buff, accum = send.clone(), send.clone(), send.clone()
    left, right = ((rank - 1) + size) % size, (rank + 1) % size
    for i in range(size - 1):
        if i % 2 == 0:
            request = dist.isend(send_buff, right)
            dist.recv(recv_buff, left)
            accum += recv_buff
        else:
            request = dist.isend(recv_buff, right)
            dist.recv(send_buff, left)
            accum += send_buff
        request.wait()
    recv[:] = accum


def run(rank: int, size: int) -> None:
    group = dist.new_group(list(range(size)))
    tensor = torch.ones(1) * (rank + 1)
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)
    received = torch.zeros(3)
    ring_allreduce(torch.full((3,), rank + 1.0), received)
    gathered = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(gathered, torch.full((2,), float(rank)))
    things: list[object] = [None] * size
    dist.all_gather_object(things, {"rank": rank})
    assert things == [{"rank": n} for n in range(size)]
    told([tensor, received, *gathered])


def init_process(backend: str = "gloo") -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(backend, rank=rank, world_size=size)
    run(rank, size)


if __name__ == "__main__":
    init_process()
