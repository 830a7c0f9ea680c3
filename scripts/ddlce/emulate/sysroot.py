"""A folder with a platform's glibc and no other library, or with nothing.

No other, so that a library missing from a prefix is missing here, as it may be on the
machine that the prefix is for.
"""

from __future__ import annotations

import os
from pathlib import Path

from ddlce.errors import InputError
from ddlce.files import explain_os_errors, on_disk_at_end, rename_synced
from ddlce.locks import locked, scratch
from ddlce.model.source import GLIBC_PACKAGE, Source, SourcesLock
from ddlce.settings import OWN_GLIBC_FOLDER, Settings
from ddlce.sources import fetch_sources
from ddlce.sources.debfile import unpack_deb
from ddlce.sources.store import SourceStore

#: What a sysroot has beside glibc: settings that the emulator makes necessary, where programs look
#: for the machine's. qemu 7 has no `process_vm_readv`, by which MPICH 5 would fetch from the other
#: ranks of a host; a test's environment has no variables that could say so.
SETTINGS = {"etc/mpich.conf": "MPIR_CVAR_CH4_CMA_ENABLE=0\n"}

#: In the folder's name; raised when SETTINGS change.
VERSION = 2


def ensure_sysroot(settings: Settings, platform: str) -> Path:
    """The sysroot, made on first use in the cache; its name tells its bytes.

    Raises:
        InputError: sources.lock has no glibc for the platform.
        SourceError: its package cannot be fetched.
    """
    source = _glibc(settings, platform)
    folder = settings.cache / "emulate" / f"{platform}-glibc-{source.sha256[:10]}-{VERSION}"
    with locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            fetch_sources([source], settings)
            make_sysroot(SourceStore(settings.sources).path(source), folder)
    return folder


def machine_of(settings: Settings, platform: str, prefix: Path) -> Path:
    """The sysroot in which an environment is tried: as little of a machine as it promises to need.

    An empty folder for one that has its own glibc: its programs then name the loader in the
    prefix, and whatever would still look for the machine's finds none.

    Raises:
        InputError, SourceError: as `ensure_sysroot`.
    """
    if not (prefix / OWN_GLIBC_FOLDER).is_dir():
        return ensure_sysroot(settings, platform)
    bare = settings.cache / "emulate" / "bare"
    with explain_os_errors(bare):
        bare.mkdir(parents=True, exist_ok=True)
    return bare


def make_sysroot(deb: Path, folder: Path) -> None:
    """Unpack a glibc package into `folder`, which appears complete or not at all."""
    with explain_os_errors(folder), scratch(folder.parent, ".sysroot-") as place:
        partial = place / "root"
        with on_disk_at_end(place):
            unpack_deb(deb, partial)
            for top in ("lib", "lib64"):  # Debian makes these links in another package
                if not (partial / top).exists():
                    (partial / top).symlink_to(f"usr/{top}")
            relative_links(partial)
            for name, text in SETTINGS.items():
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                (partial / name).write_text(text)
        rename_synced(partial, folder)


def relative_links(root: Path) -> None:
    """Make absolute symbolic links below `root` lead to where they would with `root` as /."""
    for parent, folders, files in os.walk(root):
        for path in (Path(parent) / name for name in (*folders, *files)):
            if path.is_symlink() and (target := path.readlink()).is_absolute():
                inside = root / target.relative_to("/")
                path.unlink()
                path.symlink_to(os.path.relpath(inside, path.parent))


def _glibc(settings: Settings, platform: str) -> Source:
    locked = [
        source
        for source in SourcesLock.load(settings.sources_lock).sources
        if source.is_glibc and source.subdir == platform
    ]
    if not locked:
        raise InputError(
            f"sources.lock has no {GLIBC_PACKAGE} for {platform}",
            f"ddlce sources add debian-binary:{GLIBC_PACKAGE} --platform {platform} --suite SUITE",
        )
    return locked[0]
