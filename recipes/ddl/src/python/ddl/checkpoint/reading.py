"""Finds the newest complete checkpoint and loads it; collective over the ranks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddl.checkpoint import codec, sharded, store
from ddl.checkpoint.batches import Position
from ddl.checkpoint.errors import CheckpointError, say
from ddl.checkpoint.files import check_file, open_folder, read_file
from ddl.checkpoint.ranks import Ranks, collect
from ddl.checkpoint.state import Objects, load_state


@dataclass
class Found:
    """What was loaded beside the objects.

    Attributes:
        step: that was done.
        position: in the batches, if the program goes by them.
        random: this rank's random numbers; None for a rank that there was not.
    """

    step: int
    position: Position | None
    random: dict[str, Any] | None


def read(folder: Path, ranks: Ranks, shards: Objects, others: Objects) -> Found | None:
    """Load the newest complete checkpoint into the objects; None if there is none.

    Raises:
        CheckpointError: it is of other objects; raised on all ranks.
    """
    is_first = ranks.rank == 0
    names = collect(ranks, lambda: store.candidates(folder) if is_first else [])[0]
    for name in names:
        troubles = _troubles(folder / name, ranks)
        if not troubles:
            found = _load(folder / name, ranks, shards, others)
            if is_first:
                say(f"goes on after step {found.step}, from {folder / name}")
            return found
        if is_first:
            say(f"passed over {folder / name}: {troubles[0]}")
    if names and is_first:
        say(f"no complete checkpoint is in {folder}; training begins at step 0")
    return None


def _troubles(path: Path, ranks: Ranks) -> list[str]:
    """What is wrong with a checkpoint. The ranks share the reading of its files."""

    def look() -> str:
        try:
            manifest = store.read_manifest(path)
            store.check_sizes(path, manifest)
            folder = open_folder(path)
            try:
                for file, entry in sorted(manifest["files"].items())[ranks.rank :: ranks.size]:
                    check_file(folder, file, entry)
            finally:
                os.close(folder)
        except CheckpointError as error:
            return str(error)
        return ""

    return [text for text in collect(ranks, look) if text]


def _load(path: Path, ranks: Ranks, shards: Objects, others: Objects) -> Found:
    random: list[dict[str, Any]] = []

    def load() -> store.Manifest:
        manifest = store.read_manifest(path)
        if manifest["sharded"] != bool(shards):
            kind = "sharded" if manifest["sharded"] else "not sharded"
            raise CheckpointError(f"{path}: its model is {kind}, unlike this program's")
        folder = open_folder(path)
        try:
            random.extend(_states(folder, manifest, f"rank-{ranks.rank}"))
            (state,) = _states(folder, manifest, "state")
        finally:
            os.close(folder)
        if set(state) != set(others):
            raise CheckpointError(
                f"{path}: it holds {', '.join(sorted(state))}, and the program saves "
                f"{', '.join(sorted(others))}; give another folder"
            )
        for name, thing in others.items():
            load_state(name, thing, state[name])
        return manifest

    manifest = collect(ranks, load)[0]
    if shards:
        sharded.load(path, shards, ranks)
    position = manifest["position"]
    return Found(
        step=manifest["step"],
        position=Position(**position) if position else None,
        random=random[0] if random else None,
    )


def _states(folder: int, manifest: store.Manifest, stem: str) -> list[Any]:
    """The states of a file, by its name without suffix; empty if there is none."""
    return [
        codec.read_state(name, read_file(folder, name, entry))
        for name, entry in manifest["files"].items()
        if Path(name).stem == stem
    ]
