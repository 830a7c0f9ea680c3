"""The batches of a torch DataLoader, from any step on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ddl.checkpoint.errors import CheckpointError


class Rest:
    """A batch sampler without its first batches: these are not loaded."""

    def __init__(self, sampler: Any, skipped: int) -> None:
        self._sampler, self._skipped = sampler, skipped

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._sampler), self._skipped, None)

    def __len__(self) -> int:
        return len(self._sampler) - self._skipped


def check_loader(loader: Any) -> None:
    """Raise CheckpointError for a loader whose order of batches cannot be repeated."""
    import torch.utils.data as data

    if getattr(loader, "batch_sampler", None) is None:
        raise CheckpointError(
            "loader: it has no batch sampler, so its position cannot be found again; use a dataset "
            "with an index and a batch_size, or `saver.steps`"
        )
    sampler = loader.sampler
    shuffles = isinstance(sampler, data.RandomSampler | data.WeightedRandomSampler)
    if shuffles and not hasattr(sampler, "set_epoch"):
        raise CheckpointError(
            "loader: its shuffle cannot be repeated in the middle of an epoch; give it "
            "sampler=DistributedSampler(dataset), which shuffles by the epoch's number"
        )


def epoch_of(loader: Any, epoch: int, skipped: int) -> Iterator[Any]:
    """An iterator over the batches of an epoch without the first `skipped`."""
    from torch.utils.data import DataLoader

    for sampler in (loader.sampler, loader.batch_sampler):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
    if not skipped:
        return iter(loader)
    rest = DataLoader(
        loader.dataset,
        batch_sampler=Rest(loader.batch_sampler, skipped),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
    )
    return iter(rest)
