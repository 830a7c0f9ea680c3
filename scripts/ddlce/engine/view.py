"""What rattler sees of package caches: one folder of links, for one installation.

rattler takes a package for the one that it looks for by its folder's name, writes to the notes
beside packages, holds locks on them, and brings a damaged package anew without a hash that anybody
has checked. So it never works in a cache itself. It gets links to the unpacked packages, copies of
their notes, and what it brings anew replaces a link.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddlce.files import write_atomic
from ddlce.packagecache import LOCK, note_of
from ddlce.trees import remove_tree
from ddlce.waiting import waiting_lock

#: In the prefix, whose lock the caller holds: the next run there removes what a killed one left.
VIEW = ".ddlce-packages"


@contextlib.contextmanager
def shown(packages: Mapping[str, Path], place: Path) -> Iterator[Path]:
    """A package cache at `place` that has these packages; stem → where each is."""
    place.mkdir(parents=True)
    for stem, folder in packages.items():
        (place / stem).symlink_to(folder)
        shutil.copyfile(note_of(folder), note_of(place / stem))
    yield place


def damaged(packages: Mapping[str, Path], view: Path) -> list[str]:
    """Remove the packages from the caches that rattler found damaged and fetched without a hash.

    Returns:
        One line for each.
    """
    problems = []
    for stem, folder in packages.items():
        if not (view / stem).is_symlink():
            with waiting_lock(folder.parent / LOCK):
                note_of(folder).unlink(missing_ok=True)
                remove_tree(folder)
            problems.append(
                f"{folder}: was damaged and has been removed: run the same command again"
            )
    return problems


def name_real_caches(prefix: Path, packages: Mapping[str, Path], view: Path) -> None:
    """Put the caches into the records of the packages, where rattler wrote the view."""
    for stem, folder in packages.items():
        record = prefix / "conda-meta" / f"{stem}.json"
        if record.is_file():
            text = record.read_text(encoding="utf-8")
            for quoted in (True, False):
                seen = json.dumps(str(view / stem), ensure_ascii=quoted)
                text = text.replace(seen, json.dumps(str(folder), ensure_ascii=quoted))
            write_atomic(record, text)
