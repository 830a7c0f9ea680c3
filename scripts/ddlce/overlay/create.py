"""`ddlce env overlay`: a venv on top of a release that keeps pip to the release's versions."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ddlce.env.layout import (
    Origin,
    check_unambiguous,
    clone_target,
    refuse_name_of_release,
    staged,
    user_locks,
)
from ddlce.env.records import read_records
from ddlce.errors import InputError, MachineError, WorkError
from ddlce.files import explain_os_errors, write_atomic
from ddlce.filesystem import check_characters, require
from ddlce.modulefile.content import environment_changes
from ddlce.overlay.model import MARKER, Overlay, read_overlay, require_release
from ddlce.overlay.pins import Pin, constraints, release_pins
from ddlce.overlay.scripts import scripts
from ddlce.overlay.shell import activate_text
from ddlce.ownership import check_place
from ddlce.platforms import this_platform
from ddlce.settings import Settings
from ddlce.trees import check_removable, refuse_in_use, remove_tree
from ddlce.waiting import OnWait

CONSTRAINTS = "constraints.txt"

#: Of the commands of pip that take constraints.
PIP_SECTIONS = ("install", "wheel", "download")

#: Read by Python before it looks into ~/.local, whose packages would shadow the release's.
NO_USER_SITE = "import site; site.ENABLE_USER_SITE = False\n"
PTH = "ddl-ce-overlay.pth"


@dataclass(frozen=True)
class Made:
    """The outcome of `make_overlay`.

    Attributes:
        prefix: the overlay.
        release: the prefix that it is made on.
        pins: how many packages of the release pip keeps to.
    """

    prefix: Path
    release: Path
    pins: int


def make_overlay(
    settings: Settings, name: str, release: Path, on_wait: OnWait | None = None
) -> Made:
    """Make an overlay on a release; nothing of the release is copied or changed.

    Args:
        name: a name in the folder of clones, or a path.

    Raises:
        InputError: the name is not usable, there is something at its place, it is inside of the
            release, or `release` is none, was moved, or has no Python.
        MachineError: the place cannot be written or takes no links, or others could change the
            release.
        WorkError: the release's Python makes no venv.
    """
    target = clone_target(name)
    origin = require_release(release)
    release = release.resolve()
    check_place(release, "the release", site=True)
    if target.is_relative_to(release):
        raise InputError(
            f"{target} is inside the release {release}, which is read-only",
            "choose another place for the overlay",
        )
    check_characters(target)
    refuse_name_of_release(settings, target)
    if origin.platform != this_platform():
        raise InputError(
            f"{release} is for {origin.platform}, and this machine is {this_platform()}",
            "name another release with --release",
        )
    require(target, "a path instead of a name, or CONDA_ENVS_PATH")
    with user_locks(settings, target, on_wait=on_wait):
        if os.path.lexists(target):
            raise InputError(
                f"{target} exists already", "choose another name, or remove it: ddlce env remove"
            )
        pins = release_pins(read_records(release))
        changes = environment_changes(release, origin)
        activate = activate_text(target, release, origin.env, changes)
        with staged(target) as staging:
            python = _make_venv(staging, target, release)
            with explain_os_errors(target):
                _fill(staging, target, release, origin, pins, activate)
                overlay = Overlay(
                    prefix=str(target),
                    release=str(release),
                    env=origin.env,
                    version=origin.release,
                    digest=origin.digest,
                    python=python,
                )
                write_atomic(staging / MARKER, overlay.model_dump_json(indent=2) + "\n")
    return Made(target, release, len(pins))


def remove_overlay(settings: Settings, name: str, on_wait: OnWait | None = None) -> Path | None:
    """Remove the overlay with that name or path; None where there is none.

    Raises:
        InputError: a process of this machine runs in it.
        MachineError: it belongs to another user; nothing was changed.
    """
    try:
        prefix = clone_target(name).resolve()
    except InputError:
        return None
    check_unambiguous(settings, name)
    if read_overlay(prefix) is None:
        return None
    with user_locks(settings, prefix, on_wait=on_wait):
        overlay = read_overlay(prefix)
        if overlay is None:
            raise InputError(f"{prefix} was removed by another process", "see: ddlce env list")
        check_removable(prefix)
        refuse_in_use(prefix, Path(overlay.release))
        remove_tree(prefix)
    return prefix


def _make_venv(staging: Path, target: Path, release: Path) -> str:
    """Let the release's Python make an empty venv; returns its version as `3.11`."""
    python = release / "bin" / "python"
    if not python.exists():
        raise InputError(f"{release} has no bin/python", "name another release with --release")
    options = ["--system-site-packages", "--without-pip", "--symlinks"]
    try:
        ran = subprocess.run(
            [python, "-I", "-m", "venv", *options, staging],
            capture_output=True,
            text=True,
            cwd="/",
            check=False,
        )
    except OSError as error:
        raise MachineError(
            f"cannot run {python}: {error.strerror}", "check it with: ddlce env verify"
        ) from error
    if ran.returncode:
        said = (ran.stderr.strip() or ran.stdout.strip()).splitlines() or ["it says nothing"]
        raise WorkError(
            f"{python} -m venv failed: {said[-1]}", f"check the release: ddlce env verify {release}"
        )
    if copied := [path.name for path in staging.glob("bin/python*") if not path.is_symlink()]:
        # venv copies where it cannot link, and a copy does not find the release's libraries.
        raise MachineError(
            f"{target.parent} takes no symbolic links ({', '.join(sorted(copied))})",
            "make the overlay on a file system that does, by a path instead of a name",
        )
    for script in staging.glob("bin/[aA]ctivate*"):
        script.unlink()  # they would leave out what the release's module does
    config = staging / "pyvenv.cfg"
    text = config.read_text(encoding="utf-8").replace(str(staging), str(target))
    write_atomic(config, text)
    return next(staging.glob("lib/python3.*")).name.removeprefix("python")


def _fill(
    staging: Path,
    target: Path,
    release: Path,
    origin: Origin,
    pins: dict[str, Pin],
    activate: str,
) -> None:
    """Write what a venv does not have by itself."""
    for name, text in scripts(target, release).items():
        if not os.path.lexists(staging / "bin" / name):
            write_atomic(staging / "bin" / name, text, 0o755)
    write_atomic(staging / "bin" / "activate", activate)
    write_atomic(
        staging / CONSTRAINTS, constraints(f"{origin.env} {origin.release} ({release})", pins)
    )
    write_atomic(staging / "pip.conf", pip_conf(target))
    for site in staging.glob("lib/python3.*/site-packages"):
        write_atomic(site / PTH, NO_USER_SITE)
    if list(release.glob("lib/python3.*/site-packages/pip/__main__.py")):
        for name in ("pip", "pip3"):
            write_atomic(staging / "bin" / name, _pip(target, release), 0o755)


def _pip(target: Path, release: Path) -> str:
    """The release's own pip, which installs into the venv of the Python that runs it.

    Then the release's ddlce looks at what was installed, where it knows how.
    """
    run = shlex.join([str(target / "bin" / "python"), "-P", "-m", "pip"])
    if not list(release.glob("lib/python3.*/site-packages/ddlce/overlay/after_pip.py")):
        return f'#!/bin/sh\nexec {run} "$@"\n'
    words = [str(release / "bin" / "python"), "-I", "-m", "ddlce.overlay.after_pip", str(target)]
    look = f'case " $* " in *" install "*) exec {shlex.join(words)} ;; esac\n'
    return f'#!/bin/sh\n{run} "$@" || exit\n{look}'


def pip_conf(prefix: Path) -> str:
    """The overlay's pip.conf; pip splits paths at blanks, but not the URL of a file."""
    address = (prefix / CONSTRAINTS).as_uri()
    sections = [f"[{section}]\nconstraint = {address}\n" for section in PIP_SECTIONS]
    return "[global]\ndisable-pip-version-check = true\n" + "".join(sections)
