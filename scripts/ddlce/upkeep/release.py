"""What must be true before a release is made, and the steps that make it one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from ddlce.errors import InputError, MachineError, WorkError
from ddlce.files import sha256_file, write_atomic
from ddlce.lock import lock_env, locks_folder, locks_of, read_manifest
from ddlce.model.envlock import EnvLock
from ddlce.report import read_smoke
from ddlce.settings import Settings, release_folder
from ddlce.upkeep.changelog import CHANGELOG, PENDING, part_of


@dataclass(frozen=True)
class Check:
    """One thing that must be true.

    Attributes:
        name: in a word or two.
        problem: the reason why it is not, with the remedy; "" where it is.
    """

    name: str
    problem: str = ""


def environments(settings: Settings) -> list[str]:
    """The environments of the tree that have a lock.

    Raises:
        InputError: none has.
    """
    folder = locks_folder(settings)
    found = sorted({path.name.split(".")[0] for path in folder.glob("*.lock")})
    if not found:
        raise InputError(f"{folder} has no locks", "make them: ddlce lock")
    return found


def check_release(
    settings: Settings, envs: Sequence[str], channel: str, again: Path | None
) -> list[Check]:
    """Check everything; nothing changes.

    Args:
        channel: the address of the channel that the locks are solved against.
        again: a folder with the packages of a second build, `linux-64/` and `noarch/` in it.

    Raises:
        InputError: a lock or a manifest is wrong, or the environments have several releases.
        MachineError: there is no git.
    """
    locks = locks_of(settings, envs)
    version = version_of(settings, envs)
    return [
        Check("clean tree", _changed(settings)),
        Check("new version", _tagged(settings, version)),
        Check("changelog", _heading(settings, version)),
        *(Check(f"lock of {env}", _stale(settings, env, channel)) for env in envs),
        *(
            Check(f"smoke of {lock.env} on {lock.platform}", _smoke(settings, lock))
            for lock in locks
        ),
        Check("bytes repeated", _repeated(locks, again)),
    ]


def version_of(settings: Settings, envs: Sequence[str]) -> str:
    """The release that the environments' manifests name.

    Raises:
        InputError: they name several.
    """
    found = {env: read_manifest(settings, env).release for env in envs}
    if len({*found.values()}) != 1:
        said = ", ".join(f"{env} {release}" for env, release in found.items())
        raise InputError(f"several releases at once: {said}", "name environments of one release")
    return found[envs[0]]


def tag(settings: Settings, version: str, today: date) -> str:
    """Date the release in the changelog, commit that, and tag it; returns the tag.

    Raises:
        WorkError: git refuses.
    """
    path = settings.tree / CHANGELOG
    dated = path.read_text("utf-8").replace(
        f"## {version}, {PENDING}", f"## {version}, {today.isoformat()}", 1
    )
    write_atomic(path, dated)
    _git(settings, "commit", "--quiet", "-m", f"Release {version}", "--", CHANGELOG)
    _git(settings, "tag", "--annotate", "-m", f"DDL-CE {version}", version)
    return version


def _changed(settings: Settings) -> str:
    changed = [line[3:] for line in _git(settings, "status", "--porcelain").splitlines()]
    return f"not committed: {', '.join(changed)}" if changed else ""


def _tagged(settings: Settings, version: str) -> str:
    if _git(settings, "tag", "--list", version).strip():
        return f"{version} has a tag: raise ddl_ce_release in recipes/conda_build_config.yaml"
    return ""


def _heading(settings: Settings, version: str) -> str:
    path = settings.tree / CHANGELOG
    text = path.read_text("utf-8") if path.is_file() else ""
    part = part_of(text, version)
    if part is None:
        return f"{CHANGELOG} has no part `## {version}, {PENDING}`: ddlce release --changelog"
    if not part.strip():
        return f"the part of {version} in {CHANGELOG} is empty: ddlce release --changelog"
    return ""


def _stale(settings: Settings, env: str, channel: str) -> str:
    results = lock_env(settings, env, channel, check=True)
    stale = [f"{r.platform} is {r.state}" for r in results if r.state != "unchanged"]
    return f"{', '.join(stale)}: ddlce lock {env}" if stale else ""


def _smoke(settings: Settings, lock: EnvLock) -> str:
    try:
        smoke = read_smoke(settings, lock)
    except (KeyError, TypeError, ValueError) as error:
        return f"its report cannot be read: {error!r}"
    release = f"{lock.env}/{release_folder(lock.release, lock.digest)}"
    if smoke is None:
        return f"{release} has no report: ddlce smoke {release}"
    return "" if smoke.passed else f"{release} did not pass: ddlce smoke {release}"


def _repeated(locks: Sequence[EnvLock], again: Path | None) -> str:
    """Whether a second build has made each package anew, byte by byte."""
    if again is None:
        return "not shown: build with another DDLCE_CACHE, and name its packages: --again DIR"
    wanted = {f"{p.subdir}/{p.file}": p.sha256 for lock in locks for p in lock.packages}
    lacking = [name for name in wanted if not (again / name).is_file()]
    others = [
        name
        for name, sha256 in wanted.items()
        if name not in lacking and sha256_file(again / name) != sha256
    ]
    said = [
        f"{len(names)} {what}, as {names[0]}"
        for names, what in ((lacking, "not built again"), (others, "with other bytes"))
        if names
    ]
    return "; ".join(said)


def _git(settings: Settings, *words: str) -> str:
    command = ["git", "-C", str(settings.tree), *words]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MachineError("git: no such program on this machine", "install it") from None
    if ran.returncode:
        raise WorkError(
            f"{' '.join(command)}: {ran.stderr.strip()}", "a release is made in a git checkout"
        )
    return ran.stdout
