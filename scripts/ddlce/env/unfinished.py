"""A clone in which an installation was killed: what the installer left, and half-made records."""

from __future__ import annotations

import filecmp
import stat
from pathlib import Path

from ddlce.engine.install import PROBES, remove_cut
from ddlce.engine.view import VIEW
from ddlce.env.freeze import protect_links
from ddlce.env.records import Record, read_records, unhash_links
from ddlce.files import explain_os_errors
from ddlce.packagecache import find
from ddlce.trees import PARTIAL, remove_tree

#: rattler's probes and its unfinished records; our own ones, and the view of the caches.
LEFTOVERS = (
    *(*PROBES, "conda-meta/prefix_record_*", "conda-meta/.*.new"),
    *(VIEW, f".{VIEW}{PARTIAL}*"),
)


def put_in_order(prefix: Path, cache: Path) -> list[Record]:
    """Bring a clone to where an installation that was killed would have brought it.

    Call it under the clone's lock.

    Args:
        cache: the package cache that it was installing from.

    Returns:
        The records of all packages.
    """
    with explain_os_errors(prefix):
        for pattern in LEFTOVERS:
            for path in prefix.glob(pattern):
                if path.is_dir() and not path.is_symlink():
                    remove_tree(path)
                else:
                    path.unlink()
        remove_cut(filter(_is_rattlers, prefix.glob("conda-meta/*-*-*.json")))
        found = read_records(prefix)
        records = [record for record in found if _is_unfinished(record)]
        unhash_links(records)
        for record in records:
            unpacked = find(cache, record.stem, str(record.data.get("sha256")))
            if unpacked:
                _link_anew(prefix, record, unpacked)
            if unpacked and _names_view(record):
                record.data["extracted_package_dir"] = str(unpacked)
                record.data["link"]["source"] = str(unpacked)
            record.save()
        protect_links(prefix, records)
    return found


def _is_unfinished(record: Record) -> bool:
    """Whether a record is still as rattler wrote it, so that the end of an installation is missing.

    Such a record can be read by its user alone, names the view of the caches, or has hashes of
    links.
    """
    links = [entry for entry in record.entries if entry.get("path_type") == "softlink"]
    return (
        _is_rattlers(record.path)
        or _names_view(record)
        or any("sha256_in_prefix" in entry for entry in links)
    )


def _is_rattlers(record: Path) -> bool:
    """Whether a record has the mode that rattler gives; ours and conda's can be read by others."""
    return stat.S_IMODE(record.stat().st_mode) == 0o600


def _link_anew(prefix: Path, record: Record, unpacked: Path) -> None:
    """Make links again of the copies that the installer has left in their place."""
    for entry in record.entries:
        path, link = prefix / entry["_path"], unpacked / entry["_path"]
        is_copy = path.is_file() and not path.is_symlink() and link.is_symlink()
        if is_copy and link.is_file() and filecmp.cmp(path, link, shallow=False):
            path.unlink()
            path.symlink_to(link.readlink())


def _names_view(record: Record) -> bool:
    return f"/{VIEW}/" in str(record.data.get("extracted_package_dir"))
