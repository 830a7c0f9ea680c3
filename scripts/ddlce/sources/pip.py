"""Wheels and source distributions by pip, with the machine's own configuration of it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import VERSION_PATTERN

from ddlce.errors import MachineError
from ddlce.model.target import Target
from ddlce.platforms import BUILD_PLATFORM, get_platform
from ddlce.programs import own_python
from ddlce.sources.client import DownloadError, OnBytes, run_client

#: Whatever Python and glibc, on the platform that builds.
ANY = Target(BUILD_PLATFORM)

#: A line of `pip config list`: `global.constraint='/etc/pip/constraints.txt'`.
CONSTRAINT = re.compile(r"(?m)^\S*\.constraint='(.*)'$")

#: A version as PEP 440 has it.
VERSION = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)

#: pip's warning of a version that was withdrawn.
YANKED = re.compile(
    r"is a yanked version: '(?P<name>[^']+)' candidate .*\nReason for being yanked: (?P<reason>.*)"
)

#: How `pip index versions` begins the line that matters.
VERSIONS = "Available versions: "


@dataclass(frozen=True)
class Resolved:
    """A distribution that pip chose.

    Attributes:
        name: as its metadata spells it.
        version: its version, a local part (`+cpu`) included.
        requires: its requirements (PEP 508), those of extras too.
    """

    name: str
    version: str
    requires: tuple[str, ...]


def pip_resolve(
    requirements: Sequence[str],
    constraints: Mapping[str, str],
    folder: Path,
    report: OnBytes,
    stop: Event,
    target: Target,
) -> list[Resolved]:
    """Let pip's resolver choose wheels for some requirements and all that they need.

    Args:
        requirements: in the form of PEP 508.
        constraints: name → the version that it must have, if it is chosen at all.
        folder: an empty folder.

    Raises:
        DownloadError: nothing fits, or the registry cannot be reached.
        MachineError: this Python has no pip.
    """
    wanted, held, answer = (folder / name for name in (".wanted", ".held", ".answer"))
    wanted.write_text("".join(f"{line}\n" for line in requirements))
    held.write_text("".join(f"{name}=={version}\n" for name, version in constraints.items()))
    words = [
        *("install", "--dry-run", "--ignore-installed", "--quiet"),
        *("--no-input", "--no-cache-dir", "--only-binary=:all:", "--report", str(answer)),
        # pip wants a folder for another platform's files; a dry run writes none.
        *("--target", str(folder / ".target")),
        *("--requirement", str(wanted), "--constraint", str(held)),
        *_wheel_target(target),
    ]
    _run_pip(words, folder, stop, ", ".join(requirements), report)
    metadata = [item["metadata"] for item in json.loads(answer.read_text())["install"]]
    return [
        Resolved(each["name"], each["version"], tuple(each.get("requires_dist", ())))
        for each in metadata
    ]


def pip_download(
    requirement: str,
    folder: Path,
    report: OnBytes,
    stop: Event,
    *,
    sdist: bool = False,
    sha256: str | None = None,
    target: Target = ANY,
) -> Path:
    """Let pip find one file, with the machine's own pip configuration.

    Args:
        requirement: `name==version`, or a name for the newest.
        folder: an empty folder.
        sdist: take the source distribution instead of a wheel.
        sha256: the locked digest: pip then takes only that file.
        target: what a wheel is for; any Python is that of this process.

    Raises:
        DownloadError: pip could not deliver.
        MachineError: this Python has no pip.
    """
    wanted = folder / ".requirement.txt"
    wanted.write_text(requirement + (f" --hash=sha256:{sha256}" if sha256 else "") + "\n")
    # A locked file was chosen already; its hash says all.
    any_python = ["--ignore-requires-python"] if sha256 else []
    # Of this package alone: to read its metadata pip may build with Cython, whose wheel will do.
    kind = ["--no-binary", requirement.partition("==")[0]] if sdist else ["--only-binary=:all:"]
    words = [
        *("download", "--quiet", "--no-input", "--no-deps"),
        *("--no-cache-dir", "--dest", str(folder), "--requirement", str(wanted)),
        *kind,
        *any_python,
        *([] if sdist else _wheel_target(target)),
    ]
    _run_pip(words, folder, stop, requirement, report)
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if len(files) != 1:
        raise DownloadError(f"pip delivered {len(files)} files for {requirement}", again=False)
    return files[0]


def pip_versions(
    name: str, folder: Path, stop: Event, *, sdist: bool = False, target: Target = ANY
) -> list[str]:
    """The versions of a distribution that pip finds, the newest first; none before its release.

    Args:
        folder: an empty folder.
        sdist: those that have a source distribution, instead of a wheel.

    Raises:
        DownloadError: pip finds none.
        MachineError: this Python has no pip.
    """
    words = [
        *("index", "versions", name, "--no-input"),
        *(["--no-binary", name] if sdist else ["--only-binary=:all:", *_wheel_target(target)]),
    ]
    said = _run_pip(words, folder, stop, name)
    lines = [line for line in said.splitlines() if line.startswith(VERSIONS)]
    if not lines:
        raise DownloadError(f"pip names no versions of {name}", again=False)
    named = lines[0].removeprefix(VERSIONS).replace(" ", "").split(",")
    # An older pip reads one in any file's name: `0.8.1.macosx-10.5-x86_64`, of a binary's archive.
    return [version for version in named if VERSION.fullmatch(version)]


def pip_withdrawn(
    requirements: Sequence[str], folder: Path, stop: Event, target: Target
) -> dict[str, str]:
    """Which of some exact versions their authors have withdrawn (PEP 592).

    pip's report says it only since 2024; its warnings always have.

    Args:
        requirements: `name==version`, each name once.
        folder: an empty folder.

    Returns:
        Canonical name → the reason, in the authors' words.

    Raises:
        DownloadError: one of them cannot be had any more, or the registry cannot be reached.
        MachineError: this Python has no pip.
    """
    wanted = folder / ".wanted"
    wanted.write_text("".join(f"{line}\n" for line in requirements))
    words = [
        *("install", "--dry-run", "--no-deps", "--ignore-installed"),
        *("--quiet", "--no-input", "--no-cache-dir", "--only-binary=:all:"),
        *("--ignore-requires-python", "--requirement", str(wanted)),
        *("--target", str(folder / ".target")),
        *_wheel_target(target),
    ]
    # What is locked was chosen already: constraints of this machine's are about other choices.
    said = _run_pip(words, folder, stop, "locked versions", PIP_CONSTRAINT="")
    return {canonicalize_name(found["name"]): found["reason"] for found in YANKED.finditer(said)}


def pip_constraints(folder: Path, stop: Event) -> dict[str, SpecifierSet]:
    """The versions that this machine's own pip takes, by canonical name: its constraint files.

    `pip index versions` names others, too. Files that are elsewhere than on the disk are left out.

    Args:
        folder: an empty folder.

    Raises:
        DownloadError, MachineError: as `pip_versions`.
    """
    said = _run_pip(["config", "list"], folder, stop, "its configuration")
    allowed: dict[str, SpecifierSet] = {}
    for value in CONSTRAINT.findall(said):
        for path in filter(Path.is_file, map(Path, value.split())):
            for requirement in _requirements(path.read_text()):
                name = canonicalize_name(requirement.name)
                allowed[name] = allowed.get(name, SpecifierSet()) & requirement.specifier
    return allowed


def _run_pip(
    words: Sequence[str],
    folder: Path,
    stop: Event,
    asked: str,
    report: OnBytes = lambda _: None,
    **variables: str,
) -> str:
    """What pip says; its own files are in the folder, and an error names what was asked for."""
    temporary = folder / ".tmp"
    temporary.mkdir(exist_ok=True)
    own = {"TMPDIR": str(temporary), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    env = {**os.environ, **own, **variables}
    try:
        return run_client(own_python("-m", "pip", *words), folder, report, stop, env)
    except DownloadError as error:
        raise _explained(error.reason, asked) from None


def _requirements(text: str) -> Iterator[Requirement]:
    """Those in a constraint file; options of pip's, as `-c OTHER`, are left out."""
    for line in text.splitlines():
        with suppress(InvalidRequirement):
            yield Requirement(line.partition("#")[0].strip())


def _explained(reason: str, requirement: str) -> DownloadError | MachineError:
    """The designed error for pip's own message."""
    if "No module named pip" in reason:
        return MachineError(
            f"{sys.executable} has no pip, and wheels are fetched with it",
            f"{sys.executable} -m ensurepip",
        )
    if "DO NOT MATCH THE HASHES" in reason:
        return DownloadError(
            f"what pip found for {requirement} is not the locked file", again=False
        )
    return DownloadError(reason, again="No matching distribution found" not in reason)


def _wheel_target(target: Target) -> list[str]:
    """pip's options for a target's wheels, whatever Python runs pip.

    Newest glibc last: of two equally good wheels pip takes the first platform's, and the lower
    glibc floor serves more machines.
    """
    row = get_platform(target.subdir)
    newest = int(target.glibc.rpartition(".")[2]) if target.glibc else 39
    tags = [
        *row.old_wheel_tags,
        "manylinux2014",
        *(f"manylinux_2_{n}" for n in range(5, newest + 1)),
        "linux",
    ]
    platforms = [option for tag in tags for option in ("--platform", f"{tag}_{row.machine}")]
    version = ["--python-version", target.python] if target.python else []
    return [*version, "--implementation", "cp", *platforms]
