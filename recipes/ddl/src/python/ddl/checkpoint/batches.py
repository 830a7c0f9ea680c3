"""The batches of a torch DataLoader, from any sample on."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice, repeat
from typing import Any

from ddl.checkpoint.errors import CheckpointError
from ddl.checkpoint.state import random_states, set_random_states

_LOOKED_AT = 8
"""Batches by which two orders are compared."""

_DEPTH = 8
"""Samplers that draw from each other; one may draw from itself."""


@dataclass(frozen=True)
class Position:
    """How far the training has come in its data.

    Attributes:
        epoch: that is under way.
        batches: that each rank has done of it.
        samples: that all ranks have done of the order which they share, if they share one.
        ranks: that have done these batches.
        batch_size: of these batches; 0 if they are not equally large.
    """

    epoch: int = 0
    batches: int = 0
    samples: int = 0
    ranks: int = 1
    batch_size: int = 0

    def plain(self) -> dict[str, int]:
        """It as a dictionary, for `Position(**plain)`."""
        return asdict(self)


class Course:
    """The epochs of a loader, from a position on.

    Raises:
        CheckpointError: the loader's order cannot be repeated, or the position is of other batches.
    """

    def __init__(self, loader: Any, position: Position, ranks: int) -> None:
        check_loader(loader)
        self._loader, self._ranks = loader, ranks
        self._dealt = _dealt_by(loader)
        self.position = position
        if self._dealt is None and position.batches:
            self._check_same(position)

    def epoch(self) -> tuple[Iterator[Any], Iterator[Position]]:
        """The batches that are left of this epoch, and the position after each; go to the next."""
        at = replace(self.position, ranks=self._ranks, batch_size=_batch_size(self._loader))
        for sampler in _chain(self._loader):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(at.epoch)
        self.position = Position(epoch=at.epoch + 1)
        sampler = self._rest(at)
        left = len(sampler)
        loader = _with(self._loader, sampler) if at.batches else self._loader
        return iter(loader), self._positions(at, left)

    def _rest(self, at: Position) -> Any:
        """The sampler of the batches that are left."""
        from torch.utils.data import BatchSampler

        whole = self._loader.batch_sampler
        if not at.batches:
            return whole
        if self._dealt is None:
            return Rest(whole, at.batches)
        return BatchSampler(Share(self._dealt, at.samples), whole.batch_size, whole.drop_last)

    def _positions(self, at: Position, left: int) -> Iterator[Position]:
        each = 0
        if self._dealt is not None:
            each = self._loader.batch_sampler.batch_size * self._dealt.num_replicas
        for n in range(1, left):
            yield replace(at, batches=at.batches + n, samples=at.samples + n * each)
        yield from repeat(Position(epoch=at.epoch + 1))

    def _check_same(self, position: Position) -> None:
        then = (position.ranks, position.batch_size)
        now = (self._ranks, _batch_size(self._loader))
        if then != now:
            raise CheckpointError(
                f"loader: it was interrupted in the middle of an epoch on {_words(*then)}, and "
                f"this job has {_words(*now)}; start it as it was, or give the loader "
                "sampler=DistributedSampler(dataset), which goes on with other ones"
            )


def _batch_size(loader: Any) -> int:
    return int(getattr(loader.batch_sampler, "batch_size", None) or 0)


def _words(ranks: int, batch_size: int) -> str:
    of = f" of {batch_size} samples" if batch_size else ""
    return f"{ranks} rank{'s' if ranks > 1 else ''} with batches{of}"


class Rest:
    """A batch sampler without its first batches: these are not loaded."""

    def __init__(self, sampler: Any, skipped: int) -> None:
        self._sampler, self._skipped = sampler, skipped

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._sampler), self._skipped, None)

    def __len__(self) -> int:
        return max(0, len(self._sampler) - self._skipped)


class Share:
    """A rank's samples of a DistributedSampler's order, from a place of that order on.

    Any number of ranks shares the rest out. As the DistributedSampler does, it repeats a few
    samples where the rest is not divisible, or leaves them out with `drop_last`.
    """

    def __init__(self, sampler: Any, done: int) -> None:
        size = sampler.num_replicas
        place = done + sampler.rank  # in the order, of which rank r has each size-th from r on
        self._sampler = copy.copy(sampler)
        self._first, self._sampler.rank = divmod(place, size)
        total = sampler.total_size if sampler.drop_last else len(sampler.dataset) + size - 1
        self._length: int = max(0, (total - done) // size)

    def __iter__(self) -> Iterator[int]:
        return islice(cycle(list(self._sampler)), self._first, self._first + self._length)

    def __len__(self) -> int:
        return self._length


def check_loader(loader: Any) -> None:
    """Raise CheckpointError for a loader whose order of batches cannot be repeated."""
    if getattr(loader, "batch_sampler", None) is None:
        raise CheckpointError(
            "loader: it has no batch sampler, so its position cannot be found again; use a dataset "
            "with an index and a batch_size, or `saver.steps`"
        )
    if not getattr(loader, "in_order", True):
        raise CheckpointError("loader: its batches come in any order; give it in_order=True")
    if not _repeats(loader):
        raise CheckpointError(
            "loader: its shuffle cannot be repeated in the middle of an epoch; give it "
            "sampler=DistributedSampler(dataset), which shuffles by the epoch's number"
        )


def _repeats(loader: Any) -> bool:
    """Whether an epoch of the loader has the same order each time that it is begun."""
    import torch.utils.data as data

    chain = _chain(loader)
    known = [sampler for sampler in chain if hasattr(sampler, "set_epoch")]
    shuffles = (data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler)
    if not known and any(isinstance(sampler, shuffles) for sampler in chain):
        return False
    if _dealt_by(loader) is not None:
        return True
    states = random_states()
    orders = []
    for _ in range(2):
        for sampler in known:
            sampler.set_epoch(0)
        orders.append([list(batch) for batch in islice(loader.batch_sampler, _LOOKED_AT)])
    set_random_states(states)
    return orders[0] == orders[1]


def _chain(loader: Any) -> list[Any]:
    """The loader's batch sampler, and the samplers that it draws from."""
    found: list[Any] = []
    sampler = loader.batch_sampler
    while sampler is not None and len(found) < _DEPTH:
        found.append(sampler)
        inner = getattr(sampler, "sampler", None)
        sampler = getattr(sampler, "batch_sampler", None) if inner is None else inner
    return found


def _dealt_by(loader: Any) -> Any:
    """The loader's DistributedSampler, if that alone says which samples a rank gets; or None."""
    from torch.utils.data import BatchSampler, DistributedSampler

    chain = _chain(loader)
    if [type(sampler) for sampler in chain] == [BatchSampler, DistributedSampler]:
        return chain[1]
    return None


def _with(loader: Any, sampler: Any) -> Any:
    """A loader like this one with another batch sampler."""
    from torch.utils.data import DataLoader

    return DataLoader(
        loader.dataset,
        batch_sampler=sampler,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
    )
