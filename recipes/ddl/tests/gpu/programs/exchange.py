"""The calls that only the C interface has, on GPU memory: gather to alltoallv, send and recv."""

from __future__ import annotations

import ctypes

import torch
from device import GPU, RANK, SIZE, expect

library = ctypes.CDLL("libddl.so.1")
library.ddl_last_error.restype = ctypes.c_char_p
WORLD = ctypes.c_void_p(None)
BYTES = 1003


def call(name: str, *arguments: object) -> None:
    code = getattr(library, f"ddl_comm_{name}")(WORLD, *arguments)
    assert code == 0, f"{name}: {library.ddl_last_error().decode()}"


def at(x: torch.Tensor) -> ctypes.c_void_p:
    torch.cuda.synchronize()
    return ctypes.c_void_p(x.data_ptr())


def sizes(values: list[int]) -> object:
    return (ctypes.c_size_t * len(values))(*values)


def pattern(sender: int, receiver: int, count: int = BYTES) -> torch.Tensor:
    return ((torch.arange(count) * 3 + sender * 17 + receiver * 5) % 251).to(torch.uint8)


n = ctypes.c_size_t(BYTES)
for root in range(SIZE):
    rows = torch.stack([pattern(rank, 0) for rank in range(SIZE)])
    room = torch.zeros_like(rows, device=GPU)
    call("gather", at(rows[RANK].to(GPU)), at(room), n, root)
    if root == RANK:
        expect(room, rows, f"gather to {root}")
    mine = torch.zeros(BYTES, dtype=torch.uint8, device=GPU)
    call("scatter", at(rows.to(GPU)), at(mine), n, root)
    expect(mine, rows[RANK], f"scatter from {root}")

rows = torch.stack([pattern(RANK, to) for to in range(SIZE)]).to(GPU)
room = torch.zeros_like(rows)
call("alltoall", at(rows), at(room), n)
expect(room, torch.stack([pattern(sender, RANK) for sender in range(SIZE)]), "alltoall")

# Blocks of different lengths, apart from each other: what lies between them stays.
send_bytes = [RANK + to + 1 for to in range(SIZE)]
recv_bytes = [sender + RANK + 1 for sender in range(SIZE)]
offsets = [64 * i for i in range(SIZE)]
source = torch.full((64 * SIZE,), 9, dtype=torch.uint8)
wanted = torch.full((64 * SIZE,), 7, dtype=torch.uint8)
for i in range(SIZE):
    source[offsets[i] : offsets[i] + send_bytes[i]] = pattern(RANK, i, send_bytes[i])
    wanted[offsets[i] : offsets[i] + recv_bytes[i]] = pattern(i, RANK, recv_bytes[i])
target = torch.full_like(wanted, 7).to(GPU)
there = sizes(offsets)
data = source.to(GPU)
call("alltoallv", at(data), sizes(send_bytes), there, at(target), sizes(recv_bytes), there)
expect(target, wanted, "alltoallv")

# From a GPU to host memory, and back.
if SIZE > 1 and RANK < 2:
    other = 1 - RANK
    data = pattern(0, 1).to(GPU if RANK == 0 else "cpu")
    room = torch.zeros(BYTES, dtype=torch.uint8, device=data.device)
    if RANK == 0:
        call("send", at(data), n, other, 5)
        call("recv", at(room), n, other, 6)
    else:
        call("recv", at(room), n, other, 5)
        call("send", at(room), n, other, 6)
    assert torch.equal(room.cpu(), pattern(0, 1)), "send and recv"
call("barrier")
