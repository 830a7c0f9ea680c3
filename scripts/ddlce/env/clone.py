"""`ddlce env clone`: a writable copy of an environment in seconds.

The clone is made anew from the unpacked packages that the source was installed from. Files with a
prefix inside get the new one. Everything else shares its data where it can (`sharing`), and is a
copy otherwise. No channel is needed. `relink` does it for a release and its plain clones; where it
cannot, rattler installs the same packages.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ddlce.env.bytecode import link_bytecode
from ddlce.env.finish import STATE, finish, finish_records
from ddlce.env.freeze import make_writable
from ddlce.env.layout import (
    LOCK_COPY,
    Origin,
    clone_target,
    read_origin,
    refuse_name_of_release,
    require_origin,
    staged,
    user_locks,
)
from ddlce.env.records import Record, read_records
from ddlce.env.relink import Unusual, link_files, plan_links
from ddlce.env.sharing import EDITED, Sharing, compiled_time
from ddlce.errors import InputError
from ddlce.files import explain_os_errors
from ddlce.filesystem import check_prefix, require
from ddlce.ownership import check_place
from ddlce.settings import Settings
from ddlce.waiting import OnWait

if TYPE_CHECKING:
    from ddlce.engine.install import InstallRequest
    from ddlce.engine.worker import OnProgress
    from ddlce.model.envlock import LockedPackage

#: Files of a release that a clone has too; they name no prefix.
SHARED = (LOCK_COPY, STATE, Path(".condarc"))


@dataclass(frozen=True)
class Cloned:
    """The outcome of `clone`.

    Attributes:
        prefix: the new environment.
        source: what it is a copy of.
        packages: how many it has.
        linked: files that are hard links.
        copied: files that are its own.
        reflinked: of these, how many share their data with the source until they are changed.
        why_copied: why next to nothing could be shared; None where it was.
    """

    prefix: Path
    source: Path
    packages: int
    linked: int
    copied: int
    reflinked: int = 0
    why_copied: str | None = None


def clone(
    settings: Settings,
    name: str,
    source: Path,
    *,
    progress: OnProgress | None = None,
    on_wait: OnWait | None = None,
) -> Cloned:
    """Copy the environment at `source` to a new one.

    Args:
        name: a name (see `clones_folder`) or a path.
        source: a complete environment.

    Raises:
        InputError: the name is not usable, the target exists, or the source is not ours.
        SourceError: a package is in no cache and its channel is gone.
        MachineError: the disk is full or the target's folder not writable.
    """
    target = clone_target(name)
    origin = require_origin(source)
    for place in (source, Path(origin.pkgs)):
        check_place(place, "the source", site=True)
    _check_target(settings, source, target)
    changing = [target] if origin.kind == "release" else [source, target]
    with user_locks(settings, *changing, on_wait=on_wait):
        origin = read_origin(source) or origin
        _check_free(target)
        records = read_records(source)
        copy = origin.model_copy(update={"kind": "clone", "source": str(source)})
        command = f"ddlce env clone {name}"
        sharing = Sharing()
        with staged(target) as staging:
            try:
                plans = plan_links(source, target, records, Path(origin.pkgs))
            except Unusual:
                request = _request(settings, copy, records, staging, target)
                _reinstall(
                    replace(request, progress=progress, on_wait=on_wait), source, records, sharing
                )
                with explain_os_errors(target):
                    _finish(staging, copy, source, command, records)
                    linked, own = make_writable(staging)
            else:
                with explain_os_errors(target):
                    link_files(plans, staging, sharing, progress)
                    linked, own = sharing.linked, sharing.copied + sharing.reflinked
                    own += _finish(staging, copy, source, command, records)
    why = None if linked or sharing.reflinked else _why_copied(source, target)
    return Cloned(target, source, len(records), linked, own, sharing.reflinked, why)


def _check_target(settings: Settings, source: Path, target: Path) -> None:
    """Refuse a place where a clone could not be used, or a name that means a release too."""
    if target.is_relative_to(source):
        raise InputError(f"{target} is inside {source}", "choose another place for the clone")
    check_prefix(target)
    refuse_name_of_release(settings, target)
    require(target, "a path instead of a name, or CONDA_ENVS_PATH")


def _why_copied(source: Path, target: Path) -> str | None:
    if source.stat().st_dev != target.stat().st_dev:
        return f"{source} is on another file system"
    if source.stat().st_uid != os.geteuid():
        return "the kernel lets users link to their own files only (fs.protected_hardlinks)"
    return None


def _request(
    settings: Settings, origin: Origin, records: list[Record], staging: Path, target: Path
) -> InstallRequest:
    """The packages of the source, for rattler."""
    from ddlce.engine.install import CacheLayer, InstallRequest

    others = {Path(origin.pkgs), *(_unpacked(record).parent for record in records)}
    return InstallRequest(
        [locked_package(record) for record in records],
        origin.channels,
        staging,
        # What is not in the user's own cache is read-only, and was checked when it was installed.
        [CacheLayer(settings.pkgs), *(CacheLayer(p, "skip") for p in others - {settings.pkgs})],
        origin.specs,
        final=target,
    )


def _reinstall(
    request: InstallRequest, source: Path, records: list[Record], sharing: Sharing
) -> None:
    """Let rattler install the source's packages anew: always right, but not as quick."""
    from ddlce.engine.install import install

    staging = request.prefix
    install(request)
    with explain_os_errors(request.final or staging):
        clone_records = read_records(staging)
        for name in {entry["_path"] for record in clone_records for entry in record.entries}:
            if name.endswith(EDITED):
                sharing.own(f"{staging}/{name}", compiled_time(source, name))
        link_bytecode(source, staging, records, clone_records, sharing)
        finish_records(clone_records)
        for record in clone_records:
            record.save()


def _finish(
    staging: Path, origin: Origin, source: Path, command: str, records: list[Record]
) -> int:
    """Copy the files of no package, and write the clone's origin; returns how many files."""
    shared = [name for name in SHARED if (source / name).is_file()]
    for name in shared:
        shutil.copyfile(source / name, staging / name)
    finish(staging, origin, command, records)
    return len(shared) + 2


def locked_package(record: Record) -> LockedPackage:
    """The package of an installed record; its channel is a URL."""
    from ddlce.model.envlock import LockedPackage

    data = record.data
    fields = {k: data[k] for k in LockedPackage.model_fields if data.get(k) is not None}
    fields |= {"file": data.get("fn"), "size": data.get("size", 0)}
    return LockedPackage.of(fields, str(record.path))


def _check_free(target: Path) -> None:
    if read_origin(target):
        raise InputError(
            f"{target} is there already",
            f"choose another name, or remove it: ddlce env remove {target}",
        )
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputError(f"{target} is there already and is no folder", "choose another name")
    if target.is_dir() and any(target.iterdir()):
        raise InputError(
            f"{target} is there already and is not empty",
            "choose another name, or move its content away",
        )


def _unpacked(record: Record) -> Path:
    return Path(record.data.get("extracted_package_dir") or "/nowhere")
