"""Train a small CNN on real handwritten digits, data parallel, and see how it scales.

    ddlrun -H localhost:4 python -m ddl_ce_smoke.train

trains the same model on 1, 2 and 4 of the job's ranks, one after the other, with
DistributedDataParallel on the backend "ddl", each time from scratch. While the first N ranks
train in a group of their own, the others sleep. Each rank takes batches of the same size, so N
ranks work on N times the data per step (weak scaling):

    efficiency(N) = samples/s on N ranks / (N x samples/s on 1 rank)
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from ddl_ce_smoke import digits
from ddl_ce_smoke.model import Throughput, with_efficiency
from ddl_ce_smoke.rank import Rank, Session, journal, session

ACCURACY = 0.95
#: DDP's mean gradient against one process's on the same samples: float32 rounding, no more.
GRADIENT_TOLERANCE = 1e-4
BATCH = 32
EPOCHS = 14


@dataclass(frozen=True)
class Outcome:
    """What training on `ranks` ranks gave.

    Attributes:
        identical: the weights of all ranks have the same bits.
        gradient_error: largest difference between DDP's gradients and those of one process on
            the union of the ranks' batches, relative to the largest gradient.
    """

    ranks: int
    accuracy: float
    identical: bool
    gradient_error: float
    samples_per_second: float
    oversubscribed: bool

    def problems(self) -> list[str]:
        """What is wrong with it, one line each; empty if nothing is."""
        found = []
        if self.accuracy < ACCURACY:
            found.append(f"test accuracy {self.accuracy:.1%} is below {ACCURACY:.0%}")
        if not self.identical:
            found.append("the ranks' weights differ")
        if not self.gradient_error < GRADIENT_TOLERANCE:  # so that NaN fails
            found.append(
                f"the averaged gradients differ by {self.gradient_error:.2g} (relative) from "
                "those of one process on the same samples"
            )
        return found


class Trainer:
    """Data-parallel training of the digits network on the first `count` ranks of a job."""

    def __init__(self, job: Session, group: dist.ProcessGroup, count: int) -> None:
        # A different seed per rank, on purpose: DDP must make the initial weights equal.
        torch.manual_seed(digits.SEED + job.rank.index)
        self.job, self.group, self.count = job, group, count
        train, test = digits.load()
        self.train, self.test = train.to(job.device), test.to(job.device)
        self.model = DistributedDataParallel(digits.network().to(job.device), process_group=group)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)

    def shard(self, rank: int, epoch: int) -> torch.Tensor:
        """Indices of one rank's samples in one epoch: disjoint between ranks, equally many."""
        sampler: DistributedSampler[int] = DistributedSampler(
            self.train, self.count, rank, seed=digits.SEED, drop_last=True
        )
        sampler.set_epoch(epoch)
        return torch.tensor(list(sampler), device=self.job.device)

    def gradient_error(self) -> float:
        """See `Outcome.gradient_error`; one step's forward and backward, no update."""
        batches = [self.shard(rank, 0)[:BATCH] for rank in range(self.count)]
        alone = copy.deepcopy(self.model.module)
        self._backward(alone, torch.cat(batches))
        self._backward(self.model, batches[self.job.rank.index])
        difference, largest = 0.0, 0.0
        for ours, theirs in zip(self.model.parameters(), alone.parameters(), strict=True):
            assert ours.grad is not None
            assert theirs.grad is not None
            difference = max(difference, float((ours.grad - theirs.grad).abs().max()))
            largest = max(largest, float(theirs.grad.abs().max()))
        self.optimizer.zero_grad()
        return difference / largest

    def run_epoch(self, epoch: int) -> int:
        """One pass over this rank's shard; the samples that all ranks together worked on."""
        batches = torch.split(self.shard(self.job.rank.index, epoch), BATCH)
        for batch in batches:
            self.optimizer.zero_grad()
            self._backward(self.model, batch)
            self.optimizer.step()
        return sum(len(batch) for batch in batches) * self.count

    def samples_per_second(self, epochs: Sequence[int]) -> float:
        """Trains for `epochs` and returns the speed of all ranks together."""
        dist.barrier(self.group)
        self.job.settle()
        start = time.perf_counter()
        samples = sum(self.run_epoch(epoch) for epoch in epochs)
        dist.barrier(self.group)
        self.job.settle()
        return samples / (time.perf_counter() - start)

    def accuracy(self) -> float:
        """On the whole test split."""
        with torch.no_grad():
            guessed = self.model.module(self.test.images).argmax(1)
        return float((guessed == self.test.labels).float().mean())

    def identical(self) -> bool:
        """Whether all ranks hold the same weights, bit for bit."""
        mine = fingerprint(self.model.module).to(self.job.device)
        every = [torch.empty_like(mine) for _ in range(self.count)]
        dist.all_gather(every, mine, group=self.group)
        return all(torch.equal(mine, other) for other in every)

    def _backward(self, model: nn.Module, batch: torch.Tensor) -> None:
        guess = model(self.train.images[batch])
        loss = nn.functional.cross_entropy(guess, self.train.labels[batch])
        torch.autograd.backward(loss)


def fingerprint(model: nn.Module) -> torch.Tensor:
    """The sha256 of all weights, as int64 of shape (4,)."""
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.int64)


def train(job: Session, count: int, epochs: int) -> Outcome | None:
    """Trains on ranks 0..count-1; None on the ranks beyond. Called by all ranks of the job."""
    group, outcome = job.group(count), None
    if job.rank.index < count:
        trainer = Trainer(job, group, count)
        error = trainer.gradient_error()
        trainer.run_epoch(0)  # not timed: the first steps allocate and warm caches
        speed = trainer.samples_per_second(range(1, epochs))
        outcome = Outcome(
            count,
            trainer.accuracy(),
            trainer.identical(),
            error,
            speed,
            job.oversubscribed(count),
        )
    job.finish(f"training on {count}", group, count)
    return outcome


def default_counts(size: int) -> list[int]:
    """1, 2, 4 ... up to all ranks of the job."""
    powers = [2**k for k in range(size.bit_length()) if 2**k < size]
    return [*powers, size]


def parse_counts(text: str) -> list[int]:
    """A comma-separated list of positive integers, sorted, each once.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of rank counts such as 1,2,4")
    return sorted({int(word) for word in words})


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """The options of every rank program that works on several numbers of ranks."""
    parser.add_argument("--backend", default="ddl", help="of torch.distributed (default: ddl)")
    parser.add_argument("--ranks", type=parse_counts, help="rank counts (default: 1,2,4 .. all)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds of any wait")
    parser.add_argument("--journal", type=Path, help="folder for a JSON lines file per rank")


def chosen_counts(parser: argparse.ArgumentParser, asked: list[int] | None, size: int) -> list[int]:
    """The rank counts that were asked for; ends the program where the job has fewer ranks."""
    counts = asked or default_counts(size)
    if counts[-1] > size:
        parser.error(f"--ranks asks for {counts[-1]} ranks, and this job has {size}")
    return counts


def throughput(outcomes: Sequence[Outcome], backend: str, device: str) -> list[Throughput]:
    """The rows of the report."""
    return with_efficiency(
        [
            Throughput(
                backend, device, o.ranks, o.accuracy, o.samples_per_second, None, o.oversubscribed
            )
            for o in outcomes
        ]
    )


def table(rows: Sequence[Throughput], outcomes: Sequence[Outcome]) -> str:
    """The table that a user reads."""
    lines = [f"{'ranks':>5}  {'accuracy':>8}  {'weights':<9}  {'samples/s':>9}  {'efficiency':>10}"]
    for row, outcome in zip(rows, outcomes, strict=True):
        weights = "identical" if outcome.identical else "DIFFER"
        efficiency = f"{row.efficiency:.0%}" if row.efficiency is not None else "-"
        note = "  more ranks than cores" if row.oversubscribed else ""
        lines.append(
            f"{row.ranks:>5}  {outcome.accuracy:>8.1%}  {weights:<9}  "
            f"{row.samples_per_second:>9,.0f}  {efficiency:>10}{note}"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on every rank; rank 0 prints. Exit status 1 if a training did not come out right."""
    parser = argparse.ArgumentParser(
        prog="python -m ddl_ce_smoke.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"default: {EPOCHS}")
    add_job_options(parser)
    args = parser.parse_args(argv)
    rank = Rank.from_environment()
    counts = chosen_counts(parser, args.ranks, rank.size)
    if args.epochs < 2:
        parser.error("--epochs must be at least 2: the first one is not timed")

    outcomes: list[Outcome] = []
    with journal(args.journal, rank) as record, session(args.backend, args.timeout) as job:
        for count in counts:
            record.write("at", what=f"training on {count} ranks")
            outcome = train(job, count, args.epochs)
            if outcome:
                outcomes.append(outcome)
                record.write("training", problems=outcome.problems(), **asdict(outcome))
        rows = throughput(outcomes, args.backend, job.device.type)
        if rank.index == 0:
            for row in rows:
                record.write("throughput", **asdict(row))
            print_results(args.backend, job, rows, outcomes)
    return 1 if any(outcome.problems() for outcome in outcomes) else 0


def print_results(
    backend: str, job: Session, rows: Sequence[Throughput], outcomes: Sequence[Outcome]
) -> None:
    """What rank 0 tells the user."""
    print(
        f"handwritten digits, backend {backend}, {job.rank.size} ranks, "
        f"device {job.device.type}, one thread per rank\n"
        f"{table(rows, outcomes)}"
    )
    for outcome in outcomes:
        for problem in outcome.problems():
            print(f"FAILED on {outcome.ranks} ranks: {problem}")


if __name__ == "__main__":
    sys.exit(main())
