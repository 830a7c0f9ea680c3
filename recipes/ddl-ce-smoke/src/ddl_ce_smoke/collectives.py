"""The rank program of the collectives part: every collective against the oracle.

    ddlrun -H localhost:4 python -m ddl_ce_smoke.collectives --via ddl

`--via ddl` goes through `import ddl`, `--via torch:BACKEND` through torch.distributed, `--via
horovod` through horovod.torch, `--via tensorflow` through ddl's TensorFlow operations. Where there
are GPUs and it takes their tensors, everything runs a second time, on the rank's GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ddl_ce_smoke import oracle
from ddl_ce_smoke.adapters import ADAPTERS, Collectives, TorchAdapter
from ddl_ce_smoke.rank import Journal, Rank, Session, device_of, journal, session

#: Bytes. One pass of the suite sets ddl's piece (DDL_SHM_CHUNK) so small that its borders, and
#: many pieces in flight, are cheap to reach.
SMALL_PIECE = 4096
MIB = 1024 * 1024


def sizes(dtype: torch.dtype, quick: bool) -> list[int]:
    """Numbers of elements to try: none, few, one element around a piece, odd, 1 MiB and a bit."""
    piece, mib = SMALL_PIECE // dtype.itemsize, MIB // dtype.itemsize
    around = [piece - 1, piece, piece + 1]
    return [0, 1, 7, *around] if quick else [0, 1, 7, *around, 10 * piece + 3, mib + 1]


#: One trial: sends something, and returns the expected result and the real one.
Trial = Callable[[], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Check:
    """One case of the report: the trials of one collective, data type and operation."""

    name: str
    trials: list[tuple[str, Trial]]


def checks(
    via: Collectives, rank: int, size: int, device: torch.device, quick: bool
) -> Iterator[Check]:
    """Every check, in the same order on every rank."""
    for dtype, kind in oracle.DTYPES.items():
        counts = sizes(kind, quick)
        for op in oracle.OPS:
            if via.unsupported(dtype, op):
                continue
            trials = Trials(via, dtype, op, rank, size, device)
            yield Check(
                f"allreduce {op} {dtype}", [(f"{n} elements", trials.allreduce(n)) for n in counts]
            )
            if via.scatters(op):
                yield Check(
                    f"reduce-scatter {op} {dtype}",
                    [(f"{n} elements per rank", trials.reduce_scatter(n)) for n in counts],
                )
        trials = Trials(via, dtype, "max", rank, size, device)
        yield Check(
            f"broadcast {dtype}",
            [(f"{n} elements from rank {n % size}", trials.broadcast(n, n % size)) for n in counts],
        )
        yield Check(
            f"allgather {dtype}", [(f"{n} elements per rank", trials.allgather(n)) for n in counts]
        )


@dataclass(frozen=True)
class Trials:
    """The trials for one data type and operation on one rank."""

    via: Collectives
    dtype: str
    op: str
    rank: int
    size: int
    device: torch.device

    def _input(self, rank: int, count: int) -> torch.Tensor:
        return oracle.contribution(self.op, self.dtype, rank, self.size, count)

    def _typed(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.device, oracle.DTYPES[self.dtype])

    def allreduce(self, count: int) -> Trial:
        """Every rank gets the reduction of `count` elements."""

        def trial() -> tuple[torch.Tensor, torch.Tensor]:
            mine = self._typed(self._input(self.rank, count))
            return oracle.reduced(self.op, self.dtype, self.size, count), self.via.allreduce(
                mine, self.op
            )

        return trial

    def reduce_scatter(self, count: int) -> Trial:
        """Rank n gets the n-th block of `count` elements of the reduction."""

        def trial() -> tuple[torch.Tensor, torch.Tensor]:
            mine = self._typed(self._input(self.rank, count * self.size))
            block = oracle.reduced(self.op, self.dtype, self.size, count, self.rank * count)
            return block, self.via.reduce_scatter(mine, self.op)

        return trial

    def broadcast(self, count: int, root: int) -> Trial:
        """Every rank gets the root's elements."""

        def trial() -> tuple[torch.Tensor, torch.Tensor]:
            mine = self._typed(self._input(self.rank, count))
            return self._input(root, count), self.via.broadcast(mine, root)

        return trial

    def allgather(self, count: int) -> Trial:
        """Every rank gets all ranks' elements, in the order of the ranks."""

        def trial() -> tuple[torch.Tensor, torch.Tensor]:
            mine = self._typed(self._input(self.rank, count))
            every = torch.cat([self._input(rank, count) for rank in range(self.size)])
            return every, self.via.allgather(mine)

        return trial


def run_check(check: Check, who: str) -> str | None:
    """Runs all trials of a check, also after a wrong one, so that the ranks stay together.

    Returns:
        The first problem, naming the rank; None if all results were right.
    """
    problem = None
    for label, trial in check.trials:
        expected, got = trial()
        wrong = oracle.compare(expected, got.cpu())
        if wrong and not problem:
            problem = f"{who}: {check.name}, {label}: {wrong}"
    return problem


def run_barrier(via: Collectives, title: str, job: Session, who: str) -> str | None:
    """No rank leaves a barrier before all have entered it; each rank in turn is late."""
    for late in range(job.rank.size):
        key = f"{title} barrier {late}"
        if job.rank.index == late:
            time.sleep(0.05)
        job.store.add(key, 1)
        via.barrier()
        entered = job.store.add(key, 0)
        if entered != job.rank.size:
            return f"{who}: left a barrier that {entered} of {job.rank.size} ranks had entered"
    return None


def run_all(
    via: Collectives, job: Session, record: Journal, device: torch.device, quick: bool
) -> int:
    """Runs everything on this rank, writes a `case` per check; returns the number of failures."""
    who = f"rank {job.rank.index} of {job.rank.size} on {job.rank.host}"
    title = f"{via.name} on GPUs" if device.type == "cuda" else via.name
    failures = 0

    def write(name: str, run: Callable[[], str | None]) -> None:
        nonlocal failures
        record.write("at", what=f"{title} {name}")
        start = time.perf_counter()
        problem = run()
        failures += bool(problem)
        record.write(
            "case", name=f"{title} {name}", problem=problem, seconds=time.perf_counter() - start
        )

    for check in checks(via, job.rank.index, job.rank.size, device, quick):
        write(check.name, lambda check=check: run_check(check, who))  # type: ignore[misc]
    write("barrier", lambda: run_barrier(via, title, job, who))
    return failures


def adapter_name(text: str) -> str:
    """A name in ADAPTERS, or `torch:BACKEND`."""
    if text not in ADAPTERS and not text.partition("torch:")[2]:
        raise argparse.ArgumentTypeError(
            f"{text!r} is none of {', '.join(ADAPTERS)}, torch:BACKEND"
        )
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on every rank; exit status 1 if a result was wrong."""
    parser = argparse.ArgumentParser(prog="python -m ddl_ce_smoke.collectives", description=__doc__)
    parser.add_argument(
        "--via",
        action="append",
        required=True,
        type=adapter_name,
        help=f"{', '.join(ADAPTERS)} or torch:BACKEND",
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--timeout", type=float, default=60, help="seconds of any wait")
    parser.add_argument("--journal", type=Path, help="folder for a JSON lines file per rank")
    args = parser.parse_args(argv)
    backend = next((v.partition(":")[2] for v in args.via if v not in ADAPTERS), None)
    failures = 0
    with journal(args.journal, Rank.from_environment()) as record:
        with session(backend, args.timeout) as job:
            for via in args.via:
                adapter = ADAPTERS[via]() if via in ADAPTERS else TorchAdapter(str(backend))
                devices = (torch.device("cpu"), device_of(job.rank, adapter.has_cuda))
                for device in dict.fromkeys(devices):
                    failures += run_all(adapter, job, record, device, args.quick)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
