"""Filling a package cache: what is hashed is what is unpacked, and nothing leads outside.

rattler's installer would hash what it downloads, but not what it reads from a folder, and it
believes the paths in a package. So packages are unpacked here first, each hashed by the one pass
that unpacks it, and looked through; the installer then finds all of them in the cache.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ddlce import jsontext
from ddlce.errors import not_the_locked
from ddlce.noarch import SITE, site_packages
from ddlce.ownership import closed_to_us
from ddlce.packagecache import LOCK, find, note_of, vacant, write_note
from ddlce.safepath import below_link, is_inside
from ddlce.trees import PARTIAL, remove_tree
from ddlce.waiting import OnWait, waiting_lock

#: Packages unpacked at once: decompression is most of it, and it lets other threads run.
PARALLEL = 4


class NotLocked(Exception):
    """Packages cannot be had, or are not the locked ones; one line for each."""


class Hostile(Exception):
    """A package would write outside the environment."""


def fill(
    packages: list[dict[str, Any]], caches: Sequence[Path], on_wait: OnWait | None = None
) -> dict[str, Path]:
    """Unpack into the first cache what none of them has, then look through all packages.

    Args:
        packages: what a lock has of each, and its `stem` and `url`.
        caches: folders of unpacked packages, searched in this order.

    Returns:
        Stem → where the unpacked package is.

    Raises:
        NotLocked: a package cannot be fetched or unpacked, or has another sha256.
        Hostile: a package would write outside the environment.
        MachineError: the first cache cannot be written, or its lock is not to be had.
    """
    if _absent(packages, caches):
        with waiting_lock(caches[0] / LOCK, on_wait):
            _remove_leftovers(caches[0])
            missing = _absent(packages, caches)  # another process may have brought some
            with ThreadPoolExecutor(PARALLEL) as pool:
                # Largest first, so that no big one is left to run alone at the end.
                missing.sort(key=lambda package: -int(package["size"]))
                problems = [p for p in pool.map(lambda p: _unpack(p, caches[0]), missing) if p]
        if problems:
            raise NotLocked("\n".join(sorted(problems)))
    folders = {str(p["stem"]): folder for p in packages if (folder := _found(p, caches))}
    if len(folders) < len(packages):
        lost = sorted({str(p["stem"]) for p in packages} - folders.keys())
        raise NotLocked(
            "\n".join(f"{stem}: was removed from {caches[0]} just now" for stem in lost)
        )
    refuse_paths_outside(folders.items(), site_packages(packages))
    return folders


def _found(package: dict[str, Any], caches: Sequence[Path]) -> Path | None:
    places = (find(cache, package["stem"], package["sha256"]) for cache in caches)
    return next((folder for folder in places if folder), None)


def _absent(packages: list[dict[str, Any]], caches: Sequence[Path]) -> list[dict[str, Any]]:
    return [package for package in packages if not _found(package, caches)]


def _remove_leftovers(cache: Path) -> None:
    """Remove what killed runs were unpacking; call under the cache's lock."""
    for leftover in cache.glob(".*"):
        if leftover.is_dir() and leftover.lstat().st_uid == os.geteuid():
            remove_tree(leftover)


def _unpack(package: dict[str, Any], cache: Path) -> str:
    """Bring one package into `cache`; returns what is wrong. Call under the cache's lock."""
    stem, sha256, url = package["stem"], package["sha256"], package["url"]
    partial = cache / f".{stem}.new{PARTIAL}{os.getpid()}"
    if url.startswith("file:") and (why := closed_to_us(Path(unquote(urlsplit(url).path)))):
        return f"{unquote(urlsplit(url).path)}: {why}"
    try:
        where, digest = _extract(url, partial)
        if digest is None:
            return f"{where}: missing"
        if digest != sha256:
            return not_the_locked(where, sha256)
        target = vacant(cache, stem, sha256)
        note_of(target).unlink(missing_ok=True)
        remove_tree(target)
        partial.rename(target)
        write_note(target, sha256)
    except OSError as error:  # rattler's are of this kind, too, but without a number
        if error.errno or re.search(r"os error (13|28|30|122)\b", str(error)):
            raise
        verb = "unpacked" if url.startswith("file:") else "fetched"
        return f"{unquote(url.removeprefix('file://'))}: cannot be {verb}: {error}"
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return ""


def _extract(url: str, target: Path) -> tuple[str, str | None]:
    """Unpack an archive; returns its name and the sha256 of what was read, None if absent."""
    from rattler.networking.client import Client
    from rattler.package_streaming import download_and_extract, extract

    async def download() -> tuple[bytes, bytes]:
        return await download_and_extract(Client.default_client(), url, target)

    parts = urlsplit(url)
    if parts.scheme != "file":
        return url, asyncio.run(download())[0].hex()
    path = Path(unquote(parts.path))
    return str(path), extract(path, target)[0].hex() if path.is_file() else None


def refuse_paths_outside(packages: Iterable[tuple[str, Path]], site: str) -> None:
    """Look through unpacked packages before an installer believes their paths.

    Args:
        packages: (stem, folder) of each.
        site: where the modules of `noarch: python` packages go in the environment.

    Raises:
        Hostile: names the package and the path.
    """
    names: list[tuple[str, str]] = []
    links: set[str] = set()
    for stem, folder in packages:
        python = _is_noarch_python(folder, stem)
        for name in _paths(folder, stem):
            place = (
                f"{site}/{name.removeprefix(SITE)}" if python and name.startswith(SITE) else name
            )
            names.append((stem, place))
            if (folder / name).is_symlink():
                links.add(place)
    for stem, name in names if links else ():
        if below_link(name, links):
            raise Hostile(f"{stem}: {name} may lie outside the environment: it is below a link")


def _paths(folder: Path, stem: str) -> list[str]:
    """The paths that an installer will make of a package, each of them inside."""
    listed = _json(folder, "paths.json")
    if listed is None:  # as packages were before there was a paths.json
        text = (folder / "info" / "files").read_text(encoding="utf-8")
        names: list[Any] = [line for line in text.splitlines() if line]
    else:
        names = [entry.get("_path") for entry in listed["paths"]]
    for name in names:
        if not is_inside(name):
            raise Hostile(f"{stem}: {name!r} is a path outside the environment")
    return names


def _is_noarch_python(folder: Path, stem: str) -> bool:
    """Whether it is a `noarch: python` package; refuses script names that lead elsewhere."""
    noarch = (_json(folder, "link.json") or {}).get("noarch") or {}
    for text in noarch.get("entry_points") or ():
        name = text.partition("=")[0].strip()
        if "/" in name or not is_inside(name):
            raise Hostile(f"{stem}: {name!r} is a script outside the environment")
    return bool(noarch.get("type") == "python")


def _json(folder: Path, name: str) -> dict[str, Any] | None:
    try:
        data = jsontext.load((folder / "info" / name).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Hostile(f"{folder}: info/{name} cannot be read: {error}") from error
    return data if isinstance(data, dict) else {}
