"""The training of `train`, by Horovod: the same network, task and demands, on all ranks of a job.

ddlrun -H localhost:4 python -m ddl_ce_smoke.train_horovod
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from ddl_ce_smoke import digits
from ddl_ce_smoke.outcome import Outcome, digest, tell
from ddl_ce_smoke.rank import Rank, device_of, journal, session, settle
from ddl_ce_smoke.train import BATCH, EPOCHS, add_journal_options

BACKEND = "horovod"


class Trainer:
    """Data-parallel training of the digits network on all ranks."""

    def __init__(self, hvd: Any, device: torch.device) -> None:
        # A different seed per rank, on purpose: the broadcast must make the weights equal.
        torch.manual_seed(digits.SEED + hvd.rank())
        self.hvd, self.device = hvd, device
        train, test = digits.load()
        self.train, self.test = train.to(device), test.to(device)
        self.model = digits.network().to(device)
        adam = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.optimizer = hvd.DistributedOptimizer(adam, self.model.named_parameters())
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(adam, root_rank=0)

    def batches(self, epoch: int, rank: int) -> Sequence[torch.Tensor]:
        """Indices of one rank's batches in one epoch: disjoint between ranks, equally many."""
        indices = digits.shard(len(self.train), self.hvd.size(), rank, epoch)
        return list(torch.split(indices.to(self.device), BATCH))

    def gradient_error(self) -> float:
        """See `Outcome.gradient_error`; one step's forward and backward, no update."""
        every = [self.batches(0, rank)[0] for rank in range(self.hvd.size())]
        alone = copy.deepcopy(self.model)
        self._backward(alone, torch.cat(every))
        self._backward(self.model, every[self.hvd.rank()])
        self.optimizer.synchronize()
        pairs = list(zip(self.model.parameters(), alone.parameters(), strict=True))
        difference = max(float((p.grad - q.grad).abs().max()) for p, q in pairs)
        largest = max(float(q.grad.abs().max()) for _, q in pairs)
        self.optimizer.zero_grad()
        return difference / largest

    def run_epoch(self, epoch: int) -> int:
        """One pass over this rank's shard; the samples that all ranks together worked on."""
        batches = self.batches(epoch, self.hvd.rank())
        for batch in batches:
            self.optimizer.zero_grad()
            self._backward(self.model, batch)
            self.optimizer.step()
        return sum(map(len, batches)) * int(self.hvd.size())

    def samples_per_second(self, epochs: Sequence[int]) -> float:
        """Trains for `epochs` and returns the speed of all ranks together."""
        self.hvd.barrier()
        settle(self.device)
        start = time.perf_counter()
        samples = sum(self.run_epoch(epoch) for epoch in epochs)
        self.hvd.barrier()
        settle(self.device)
        return samples / (time.perf_counter() - start)

    def accuracy(self) -> float:
        """On the whole test split."""
        with torch.no_grad():
            guessed = self.model(self.test.images).argmax(1)
        return float((guessed == self.test.labels).float().mean())

    def identical(self) -> bool:
        """Whether all ranks hold the same weights, bit for bit."""
        mine = digest(tensor.numpy(force=True) for tensor in self.model.state_dict().values())
        return len(set(self.hvd.allgather_object(mine, name="digest"))) == 1

    def _backward(self, model: nn.Module, batch: torch.Tensor) -> None:
        guess = model(self.train.images[batch])
        loss = nn.functional.cross_entropy(guess, self.train.labels[batch])
        torch.autograd.backward(loss)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on every rank; rank 0 prints. Exit status 1 if the training did not come out right."""
    parser = argparse.ArgumentParser(
        prog="python -m ddl_ce_smoke.train_horovod",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_journal_options(parser)
    args = parser.parse_args(argv)
    rank = Rank.from_environment()
    with journal(args.journal, rank) as record, session(None, args.timeout) as job:
        import horovod.torch as hvd

        hvd.init()
        record.write("at", what=f"training on {rank.size} ranks with Horovod")
        trainer = Trainer(hvd, device_of(rank, hvd.cuda_built()))
        error = trainer.gradient_error()
        trainer.run_epoch(0)  # not timed: the first steps allocate and warm caches
        speed = trainer.samples_per_second(range(1, EPOCHS))
        outcome = Outcome(
            rank.size,
            trainer.accuracy(),
            trainer.identical(),
            error,
            speed,
            job.oversubscribed(rank.size),
        )
        record.write("training", problems=outcome.problems(), **asdict(outcome))
        if rank.index == 0:
            title = f"handwritten digits, Horovod, {rank.size} ranks, one thread per rank"
            tell(title, [outcome], BACKEND, trainer.device.type, record)
        hvd.shutdown()
    return 1 if outcome.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
