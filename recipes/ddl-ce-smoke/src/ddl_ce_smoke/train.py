"""Train a small CNN on real handwritten digits, data parallel, and see how it scales.

    ddlrun -H localhost:4 python -m ddl_ce_smoke.train

trains the same model on 1, 2 and 4 of the job's ranks, one after the other, with
DistributedDataParallel on the backend "ddl", each time from scratch. While the first N ranks
train in a group of their own, the others sleep. Each rank takes batches of the same size, so N
ranks work on N times the data per step (weak scaling):

    efficiency(N) = samples/s on N ranks / (N x samples/s on 1 rank)

outcome.py says how good a training must be to pass.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddl_ce_smoke import digits
from ddl_ce_smoke.outcome import Outcome, digest, tell
from ddl_ce_smoke.rank import Rank, Session, journal, session, settle

BATCH = 32
EPOCHS = 14


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
        """Indices of one rank's samples in one epoch."""
        return digits.shard(len(self.train), self.count, rank, epoch).to(self.job.device)

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
        settle(self.job.device)
        start = time.perf_counter()
        samples = sum(self.run_epoch(epoch) for epoch in epochs)
        dist.barrier(self.group)
        settle(self.job.device)
        return samples / (time.perf_counter() - start)

    def accuracy(self) -> float:
        """On the whole test split."""
        with torch.no_grad():
            guessed = self.model.module(self.test.images).argmax(1)
        return float((guessed == self.test.labels).float().mean())

    def identical(self) -> bool:
        """Whether all ranks hold the same weights, bit for bit."""
        weights = (tensor.numpy(force=True) for tensor in self.model.module.state_dict().values())
        mine = torch.frombuffer(bytearray(digest(weights)), dtype=torch.int64).to(self.job.device)
        every = [torch.empty_like(mine) for _ in range(self.count)]
        dist.all_gather(every, mine, group=self.group)
        return all(torch.equal(mine, other) for other in every)

    def _backward(self, model: nn.Module, batch: torch.Tensor) -> None:
        guess = model(self.train.images[batch])
        loss = nn.functional.cross_entropy(guess, self.train.labels[batch])
        torch.autograd.backward(loss)


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


def add_journal_options(parser: argparse.ArgumentParser) -> None:
    """The options of every rank program."""
    parser.add_argument("--timeout", type=float, default=120, help="seconds of any wait")
    parser.add_argument("--journal", type=Path, help="folder for a JSON lines file per rank")


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """The options of every rank program that works on several numbers of ranks."""
    parser.add_argument("--backend", default="ddl", help="of torch.distributed (default: ddl)")
    parser.add_argument("--ranks", type=parse_counts, help="rank counts (default: 1,2,4 .. all)")
    add_journal_options(parser)


def chosen_counts(parser: argparse.ArgumentParser, asked: list[int] | None, size: int) -> list[int]:
    """The rank counts that were asked for; ends the program where the job has fewer ranks."""
    counts = asked or default_counts(size)
    if counts[-1] > size:
        parser.error(f"--ranks asks for {counts[-1]} ranks, and this job has {size}")
    return counts


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
        if rank.index == 0:
            title = (
                f"handwritten digits, backend {args.backend}, {rank.size} ranks, "
                f"device {job.device.type}, one thread per rank"
            )
            tell(title, outcomes, args.backend, job.device.type, record)
    return 1 if any(outcome.problems() for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
