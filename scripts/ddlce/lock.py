"""`ddlce lock`: from a manifest to one lock per platform."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import requests

from ddlce.engine.solve import solve
from ddlce.errors import InputError, SourceError
from ddlce.files import write_atomic
from ddlce.lockdiff import changes
from ddlce.model.envlock import EnvLock
from ddlce.model.manifest import OWN_CHANNEL, Manifest, load_manifest
from ddlce.repodata import read_records
from ddlce.settings import Settings
from ddlce.userpath import absolute

#: Of the target machines; the oldest kernel among the distributions that glibc 2.28+ comes with.
LINUX = "4.18"


class MissingSubdirError(SourceError):
    """The channel has nothing for the platform, or not all that the manifest names."""


@dataclass(frozen=True)
class Locked:
    """What became of one platform's lock.

    Attributes:
        platform: conda subdir.
        path: the lock file.
        state: `skipped`: the channel has no such platform; `stale`: another lock is due, and
            it was not written because this was a check.
        lock: the lock as it should be; None when skipped.
        changes: lines that say how the packages differ from the file's.
        why: of `skipped`: what the channel does not have.
    """

    platform: str
    path: Path
    state: Literal["written", "unchanged", "stale", "skipped"]
    lock: EnvLock | None = None
    changes: tuple[str, ...] = ()
    why: str = ""


def lock_env(settings: Settings, env: str, channel: str, *, check: bool = False) -> list[Locked]:
    """Lock an environment for every platform of its manifest that the channel has.

    The lock of an earlier release goes into the folder of that release: it stays installable.

    Args:
        channel: the address of our own channel.
        check: compare only.

    Raises:
        InputError: the manifest is wrong or cannot be satisfied.
        SourceError: a channel cannot be read, or it has none of the platforms.
    """
    path = _manifest_path(settings, env)
    manifest = load_manifest(path)
    channels = channel_addresses(manifest.channels, channel)
    results = []
    for platform in manifest.platforms:
        target = lock_path(settings, env, platform)
        try:
            lock = _solve(settings, path, manifest, platform, channels)
        except MissingSubdirError as error:
            results.append(Locked(platform, target, "skipped", why=error.message))
            continue
        results.append(_compare(platform, target, lock, check=check))
    if all(result.state == "skipped" for result in results):
        raise MissingSubdirError(
            f"{path}: the channel {', '.join(channels.values())} has none of its platforms "
            f"({', '.join(manifest.platforms)})",
            "build it first: ddlce build && ddlce index",
        )
    return results


def read_manifest(settings: Settings, env: str) -> Manifest:
    """The manifest of an environment in envs/.

    Raises:
        InputError: there is none, or it is wrong.
    """
    return load_manifest(_manifest_path(settings, env))


def _manifest_path(settings: Settings, env: str) -> Path:
    return settings.tree / "envs" / f"{env}.yaml"


def lock_path(settings: Settings, env: str, platform: str, release: str = "") -> Path:
    """Where the lock of an environment lies; an earlier release's is in a folder of its own."""
    return locks_folder(settings) / release / f"{env}.{platform}.lock"


def locks_of(settings: Settings, envs: Sequence[str]) -> list[EnvLock]:
    """The locks of some environments, for all of their platforms that have one.

    Raises:
        InputError: a manifest or a lock is wrong.
    """
    paths = [
        lock_path(settings, env, platform)
        for env in envs
        for platform in read_manifest(settings, env).platforms
    ]
    return [EnvLock.load(path) for path in paths if path.is_file()]


def locks_folder(settings: Settings) -> Path:
    """The folder of the tree's locks."""
    return settings.tree / "envs" / "locks"


def all_locks(settings: Settings) -> list[Path]:
    """The tree's locks, then those of the releases before."""
    folder = locks_folder(settings)
    return [*sorted(folder.glob("*.lock")), *sorted(folder.glob("*/*.lock"))]


def find_lock(settings: Settings, env: str, platform: str, release: str) -> Path:
    """The lock of a release that the tree has: its own, or one before.

    Raises:
        InputError: it has none, or its own lock is damaged.
    """
    own = lock_path(settings, env, platform)
    if own.is_file() and EnvLock.load(own).release == release:
        return own
    earlier = lock_path(settings, env, platform, release)
    if not earlier.is_file():
        raise InputError(
            f"there is no lock of {env} {release} for {platform}: no {earlier}",
            f"{locks_folder(settings)} has a folder for each earlier release",
        )
    return earlier


def channel_addresses(names: list[str], own: str) -> dict[str, str]:
    """Channel name → address: our own channel by its name, others by their URL.

    Raises:
        InputError: one is no URL.
    """
    for name in names:
        _refuse_no_url(name, "channels")
    return {name: own if name == OWN_CHANNEL else name for name in names}


def channel_address(text: str | Path, argument: str = "--channel") -> str:
    """A channel given as folder or URL, as URL.

    Raises:
        InputError: it looks like a URL, and is none.
    """
    if isinstance(text, str) and "://" in text:
        _refuse_no_url(text, argument)
        return text.rstrip("/")
    return absolute(text, argument).as_uri()


def _refuse_no_url(text: str, what: str) -> None:
    try:
        urlsplit(text)
    except ValueError as error:
        raise InputError(
            f"{what}: {text!r} is no address: {error}", "write a folder, or e.g. http://HOST/"
        ) from None


def explicit(lock: EnvLock, channels: dict[str, str]) -> str:
    """The lock as an `@EXPLICIT` file, which stock conda and mamba install from."""
    lines = [
        f"# {lock.env} {lock.release}; install it with: conda create --name NAME --file THIS-FILE",
        f"# platform: {lock.platform}",
        "@EXPLICIT",
        *(f"{package.url(channels)}#sha256:{package.sha256}" for package in lock.packages),
    ]
    return "\n".join(lines) + "\n"


def required_by(lock: EnvLock) -> dict[str, list[str]]:
    """For each package, who needs it: other packages, or `manifest`."""
    needed: dict[str, list[str]] = defaultdict(list)
    for spec in lock.specs:
        needed[spec_name(spec)].append("manifest")
    for package in lock.packages:
        for name in sorted({spec_name(spec) for spec in package.depends}):
            needed[name].append(package.name)
    return {package.name: needed[package.name] for package in lock.packages}


def spec_name(spec: str) -> str:
    """The package name in a match spec."""
    return re.split(r"[\s=<>!~\[]", spec.strip().rpartition("::")[2], maxsplit=1)[0].lower()


def _solve(
    settings: Settings, path: Path, manifest: Manifest, platform: str, channels: dict[str, str]
) -> EnvLock:
    own = channels.get(OWN_CHANNEL)
    if own and not _has_platform(own, platform):
        raise MissingSubdirError("the channel has no packages for it")
    if own and (lacking := _only_elsewhere(own, manifest, platform)):
        raise MissingSubdirError(f"the channel has no {', '.join(lacking)} for it (yet)")
    wanted = manifest.platforms[platform]
    virtual = {"__glibc": wanted.glibc, "__linux": LINUX, "__unix": "0", **wanted.virtual_packages}
    specs = manifest.specs_for(platform)
    try:
        packages = solve(specs, channels, platform, virtual, settings.cache / "repodata")
    except InputError as error:
        raise InputError(
            f"{path}: {error.message}",
            f"the specs are: {', '.join(specs)}; the machine is taken to have "
            + ", ".join(f"{name} {version}" for name, version in virtual.items()),
        ) from error
    return EnvLock(
        env=manifest.name,
        release=manifest.release,
        platform=platform,
        manifest=manifest.digest,
        channels=manifest.channels,
        specs=specs,
        virtual_packages=virtual,
        variables=manifest.variables,
        packages=packages,
    )


def _has_platform(channel: str, platform: str) -> bool:
    """False when the channel has no such subdir: to the solver it would only look empty."""
    address = urlsplit(channel)
    if address.scheme == "file":
        return Path(unquote(address.path), platform, "repodata.json").is_file()
    try:
        found = requests.head(f"{channel}/{platform}/repodata.json", timeout=30)
    except requests.RequestException:  # the solver asks again, and its message is better
        return True
    return bool(found.status_code != requests.codes.not_found)


def _only_elsewhere(channel: str, manifest: Manifest, platform: str) -> list[str]:
    """The packages that the manifest names and that the channel has for other platforms only.

    A name that it has for none is a mistake, and the solver says so.
    """
    address = urlsplit(channel)
    if address.scheme != "file":
        return []
    folder = Path(unquote(address.path))
    here = _names(folder / platform) | _names(folder / "noarch")
    others = set[str]().union(*(_names(folder / p) for p in manifest.platforms))
    return sorted({spec_name(spec) for spec in manifest.specs_for(platform)} & others - here)


def _names(subdir: Path) -> set[str]:
    return {record["name"] for record in read_records(subdir / "repodata.json").values()}


def _compare(platform: str, target: Path, lock: EnvLock, *, check: bool) -> Locked:
    text = lock.to_yaml()
    # Read before it is looked into: another `ddlce lock` may write the next release's meanwhile.
    before = target.read_bytes() if target.is_file() else b""
    if before == text.encode():
        return Locked(platform, target, "unchanged", lock)
    old, found = None, tuple[str, ...]()
    with suppress(InputError):  # absent or damaged: there is nothing to compare with
        old = EnvLock.load(target)
        found = tuple(change.line for change in changes(old, lock))
    if check:
        return Locked(platform, target, "stale", lock, found)
    if old and old.release != lock.release:  # who has that release may want it again
        earlier = target.parent / old.release / target.name
        write_atomic(earlier, before)
    write_atomic(target, text)
    return Locked(platform, target, "written", lock, found)
