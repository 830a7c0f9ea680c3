"""Writes a checkpoint; collective over the ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ddl.checkpoint import codec, sharded, store
from ddl.checkpoint.batches import Position
from ddl.checkpoint.files import Entry
from ddl.checkpoint.ranks import Ranks, collect
from ddl.checkpoint.state import Objects, gather, random_states, state_of


def write(
    folder: Path,
    ranks: Ranks,
    shards: Objects,
    others: Objects,
    *,
    step: int,
    position: Position | None,
    keep: int,
) -> None:
    """Write a checkpoint of the objects, and remove old ones beyond `keep`.

    Args:
        folder: of the checkpoints.
        ranks: all of which call it.
        shards: what torch.distributed.checkpoint saves.
        others: what the first rank saves.
        position: in the batches, if the program goes by them.
        keep: how many complete checkpoints stay.

    Raises:
        CheckpointError: a rank could not; raised on all.
    """
    is_first = ranks.rank == 0
    try:
        begin = collect(ranks, lambda: store.begin(folder, step) if is_first else "")
        path = folder / begin[0]
        gather(others)
        if shards:
            sharded.save(path, shards, ranks)
        files: dict[str, Entry] = {}
        for entries in collect(ranks, lambda: _write_own(path, ranks.rank, shards, others)):
            files.update(entries)
        manifest = store.Manifest(
            step=step,
            ranks=ranks.size,
            sharded=bool(shards),
            position=position.plain() if position else None,
            files=files,
        )

        def commit() -> None:
            if is_first:
                final = store.commit(folder, path.name, manifest)
                store.prune(folder, keep, final.name)

        collect(ranks, commit)
    except BaseException:
        if is_first:
            store.discard(folder)
        raise


def _write_own(path: Path, rank: int, shards: Objects, others: Objects) -> dict[str, Entry]:
    """This rank's files: its random numbers; of the first rank, the state of the objects."""
    end = codec.suffix()
    files = sharded.written(path, rank) if shards else {}
    name = f"rank-{rank}{end}"
    files[name] = codec.write_state(path / name, random_states())
    if rank == 0:
        state: dict[str, Any] = {name: state_of(thing) for name, thing in others.items()}
        files[f"state{end}"] = codec.write_state(path / f"state{end}", state)
    return files
