"""The rank program of the benchmark part: allreduce bandwidth and training speed, beside a peer.

    ddlrun -H localhost:4 python -m ddl_ce_smoke.bench

The backend and its peer are measured in turns in the same processes, so that whatever else the
machine does meets both. Each figure is the median of the turns. The peer is NCCL where each rank
has a GPU of its own, and gloo elsewhere.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from ddl_ce_smoke.rank import Journal, Rank, Session, journal, session, settle
from ddl_ce_smoke.train import Trainer, add_job_options, chosen_counts

KIB, MIB = 1024, 1024 * 1024
SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB)
QUICK_SIZES = (4 * KIB, 64 * KIB, 1 * MIB)
TURNS = 3

Groups = dict[str, dist.ProcessGroup]


def calls(nbytes: int) -> int:
    """The number of allreduces in one turn: many of the short ones, few of the long."""
    return max(3, min(50, 32 * MIB // nbytes))


def time_allreduce(job: Session, group: dist.ProcessGroup, nbytes: int) -> float:
    """Seconds per in-place float32 sum of `nbytes`, on this rank.

    Raises:
        ArithmeticError: the result of the warm-up call is wrong.
    """
    count, size, mine = nbytes // 4, dist.get_world_size(group), job.rank.index + 1
    buffer = torch.full((count,), float(mine), device=job.device)
    dist.all_reduce(buffer, group=group)
    if not bool((buffer == size * (size + 1) / 2).all()):
        raise ArithmeticError(f"allreduce of {nbytes} bytes on {size} ranks gave a wrong sum")
    buffer.zero_()
    dist.barrier(group)
    settle(job.device)
    start = time.perf_counter()
    for _ in range(calls(nbytes)):
        dist.all_reduce(buffer, group=group)
    settle(job.device)
    return (time.perf_counter() - start) / calls(nbytes)


def measure_bandwidth(job: Session, groups: Groups, record: Journal, sizes: Sequence[int]) -> None:
    """Writes a `bandwidth` row of this rank per backend and size."""
    for nbytes in sizes:
        seconds: dict[str, list[float]] = {backend: [] for backend in groups}
        for _ in range(TURNS):
            for backend, group in groups.items():
                record.write("at", what=f"{backend} allreduce of {nbytes} bytes")
                seconds[backend].append(time_allreduce(job, group, nbytes))
        for backend, group in groups.items():
            record.write(
                "bandwidth",
                backend=backend,
                device=job.device.type,
                ranks=dist.get_world_size(group),
                nbytes=nbytes,
                seconds=statistics.median(seconds[backend]),
            )


def measure_training(job: Session, groups: Groups, record: Journal, count: int, turns: int) -> None:
    """Rank 0 writes a `speed` row per backend: samples/s of DDP training on `count` ranks."""
    trainers = {backend: Trainer(job, group, count) for backend, group in groups.items()}
    speeds: dict[str, list[float]] = {backend: [] for backend in groups}
    for turn in range(turns + 1):
        for backend, trainer in trainers.items():
            record.write("at", what=f"training on {count} ranks with {backend}")
            speeds[backend].append(trainer.samples_per_second([turn]))
    for backend, measured in speeds.items() if job.rank.index == 0 else ():
        record.write(
            "speed",
            backend=backend,
            device=job.device.type,
            ranks=count,
            samples_per_second=statistics.median(measured[1:]),  # the first turn warms up
            oversubscribed=job.oversubscribed(count),
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on every rank; the suite reads the journals."""
    parser = argparse.ArgumentParser(prog="python -m ddl_ce_smoke.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and turns")
    add_job_options(parser)
    args = parser.parse_args(argv)
    rank = Rank.from_environment()
    counts = chosen_counts(parser, args.ranks, rank.size)
    with journal(args.journal, rank) as record, session(args.backend, args.timeout) as job:
        for count in counts:
            has_nccl = job.device.type == "cuda" and not job.shares_gpus(count)
            peer = "nccl" if has_nccl else "gloo"
            groups = {backend: job.group(count, backend) for backend in (args.backend, peer)}
            if rank.index < count:
                measure_training(job, groups, record, count, 1 if args.quick else TURNS)
                if count > 1:
                    sizes = QUICK_SIZES if args.quick else SIZES
                    measure_bandwidth(job, groups, record, sizes)
            job.finish(f"benchmark on {count}", groups[args.backend], count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
