"""Allreduce of float32 on GPU memory: libddl, NCCL's own call, and torch's nccl backend.

    python tests/bench/bench_gpu.py
    python tests/bench/bench_gpu.py --sizes 1M 64M --rounds 30

Needs the CUDA variant of ddl, a torch with CUDA, `mpiexec` beside this interpreter, and GPUs; where
one is missing it says so and measures nothing. Rank r uses GPU r modulo the number of GPUs. NCCL
wants a GPU for each rank; with ranks on pretended hosts (`hosts`), or several on one GPU, libddl is
measured alone, through pinned memory between them. A call takes as long as its slowest rank, until
the GPU is done; medians of the rounds, in which the libraries take turns. Every result is checked.
Bus bandwidth is that of nccl-tests: bytes / seconds * 2 (n - 1) / n. Prints a table and
writes tests/bench/out/gpu.json.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import parse_size, run_command, write_report

OUT = Path(__file__).parent / "out" / "gpu.json"
Call = Callable[[], None]


def why_not() -> str:
    """What is missing, or ''."""
    try:
        import torch
        from ddl import _core
    except ImportError as error:
        return str(error)
    if not _core.cuda_library():
        return "this ddl was built without CUDA"
    return "" if torch.cuda.is_available() else "torch sees no GPU"


# -- One rank --------------------------------------------------------------------------------


class UniqueId(ctypes.Structure):
    """ncclUniqueId, which is passed by value."""

    _fields_ = (("internal", ctypes.c_byte * 128),)


def nccl_call(x: Any, rank: int, size: int) -> Call:
    """NCCL's own ncclAllReduce, as libddl's and torch's process has it loaded."""
    import ddl
    import torch

    nccl = ctypes.CDLL("libnccl.so.2")
    id_ = UniqueId()
    if rank == 0:
        assert nccl.ncclGetUniqueId(ctypes.byref(id_)) == 0
    data = torch.frombuffer(id_, dtype=torch.uint8)
    ddl.broadcast(data)
    comm = ctypes.c_void_p()
    assert nccl.ncclCommInitRank(ctypes.byref(comm), size, id_, rank) == 0
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointer, count = ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(x.numel())

    def call() -> None:
        float32, total = 7, 0
        assert nccl.ncclAllReduce(pointer, pointer, count, float32, total, comm, stream) == 0
        torch.cuda.synchronize()

    return call


def torch_call(x: Any) -> Call:
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("nccl", device_id=x.device)

    def call() -> None:
        dist.all_reduce(x)
        torch.cuda.synchronize()

    return call


def measure(nbytes: int, rounds: int, with_peers: bool) -> dict[str, float]:
    """Median seconds of each library, of the slowest rank in each round."""
    import ddl
    import torch

    rank, size = ddl.rank(), ddl.size()
    x = torch.empty(nbytes // 4, device=torch.device("cuda", torch.cuda.current_device()))

    def ours() -> None:
        ddl.allreduce_(x)

    calls: dict[str, Call] = {"ddl": ours}
    if with_peers:
        calls |= {"nccl": nccl_call(x, rank, size), "torch": torch_call(x)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 2):
        for name, call in calls.items():
            x.fill_(rank + 1)
            torch.cuda.synchronize()
            ddl.barrier()
            start = time.perf_counter()
            call()
            seconds = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
            assert (x == size * (size + 1) / 2).all(), f"{name}: a wrong sum"
            slowest = float(ddl.allreduce(seconds, "max")[0])
            if turn >= 2:  # the first ones set up
                times[name].append(slowest)
    return {name: statistics.median(found) for name, found in times.items()}


def be_a_rank(options: argparse.Namespace) -> None:
    import ddl
    import torch

    ddl.init()
    torch.cuda.set_device(ddl.rank() % torch.cuda.device_count())
    names = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.port)}
    os.environ |= names | {"RANK": str(ddl.rank()), "WORLD_SIZE": str(ddl.size())}
    found = {n: measure(n, options.rounds, options.with_peers) for n in options.sizes}
    if ddl.rank() == 0:
        print(json.dumps(found))
    ddl.finalize()


# -- The command ----------------------------------------------------------------------------


def layouts(gpus: int) -> list[tuple[int, int]]:
    """(ranks, pretended hosts; 0: none) that are worth a look on so many GPUs."""
    own = [n for n in (1, 2, 4, 8) if n <= gpus]
    between = [(4, 2), (8, 2)] if gpus >= 4 else []
    return [(n, 0) for n in own] + [(2, 2)] + [(n, h) for n, h in between if n <= gpus]


def run_ranks(options: argparse.Namespace, n: int, hosts: int, gpus: int) -> dict[str, Any]:
    command = [
        *(Path(sys.executable).with_name("mpiexec"), "-n", n, sys.executable, __file__, "--rank"),
        *("--rounds", options.rounds, "--port", options.port, "--sizes", *options.sizes),
        *(["--with-peers"] if hosts == 0 and n <= gpus else []),
    ]
    env = os.environ | ({"DDL_FAKE_HOSTS": str(hosts)} if hosts else {})
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=env, timeout=500
    )
    if done.returncode != 0:
        raise RuntimeError(f"{n} ranks on {hosts or 1} hosts failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sizes = ["4K", "64K", "1M", "16M", "256M"]
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[*map(parse_size, sizes)])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--port", type=int, default=29533, help="for torch's rendezvous")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--with-peers", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        be_a_rank(options)
        return
    reason = why_not()
    if reason:
        print(f"not measured: {reason}")
        return
    import torch

    gpus = torch.cuda.device_count()
    print(f"{gpus} x {torch.cuda.get_device_name()}")
    print(f"{'ranks':>5} {'hosts':>5} {'bytes':>10} {'library':>8} {'us':>10} {'GB/s bus':>9}")
    rows = []
    for n, hosts in layouts(gpus):
        for size, times in run_ranks(options, n, hosts, gpus).items():
            for name, seconds in times.items():
                bus = int(size) / seconds * 2 * (n - 1) / n / 1e9
                rows.append([n, hosts or 1, int(size), name, seconds, bus])
                where = f"{n:5} {hosts or 1:5} {int(size):10}"
                print(f"{where} {name:>8} {seconds * 1e6:10.1f} {bus:9.2f}")
    head = {"gpus": gpus, "gpu": torch.cuda.get_device_name()}
    write_report(options.out, options, **head, rows=rows)


if __name__ == "__main__":
    run_command(main)
