"""What a bundle says of itself, and where its parts are in the file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from ddlce.errors import InputError
from ddlce.model.envlock import EnvLock, LockedPackage

#: Bytes of the header, padded: what `sh` reads, before the first part.
HEADER = 65536

#: Bytes at the end of the file: the sha256 in hex, and a line break.
TRAILER = 65

#: Names in the first part, and of the folder that the second one is.
BOOT, RELEASE, CHANNEL = "boot", "release", "channel"

#: The package whose code installs, and the one that the first Python reads packages with.
INSTALLER, READER = "ddlce", "backports.zstd"


class Description(BaseModel):
    """`release/bundle.json`.

    Attributes:
        env, release, platform, digest: of the lock.
        python: the folder of Python's library, `python3.11`.
        runs_on: the files of the packages that `ddlce` itself needs.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    env: str
    release: str
    platform: str
    digest: str
    python: str
    runs_on: list[str]


@dataclass(frozen=True)
class Bundle:
    """A written bundle.

    Attributes:
        path: the file.
        size: its bytes.
        sha256: of all but its last line, as that line has it.
        packages: how many are in it.
        packages_size: their bytes.
    """

    path: str
    size: int
    sha256: str
    packages: int
    packages_size: int


def describe(lock: EnvLock) -> Description:
    """The description of a lock's bundle.

    Raises:
        InputError: the lock has no `ddlce`, or not all that it needs: nothing could install it.
    """
    needed = closure(lock, INSTALLER)
    names = {package.name for package in needed}
    if missing := {INSTALLER, READER, "python"} - names:
        raise InputError(
            f"the lock of {lock.env} for {lock.platform} has no {' and no '.join(sorted(missing))}"
            " to install it with",
            f"add {INSTALLER} to the specs of the manifest, and lock again",
        )
    python = next(package for package in needed if package.name == "python")
    return Description(
        env=lock.env,
        release=lock.release,
        platform=lock.platform,
        digest=lock.digest,
        python=f"python{'.'.join(python.version.split('.')[:2])}",
        runs_on=sorted(package.file for package in needed),
    )


def closure(lock: EnvLock, name: str) -> list[LockedPackage]:
    """The locked packages that `name` needs, itself among them."""
    found: dict[str, LockedPackage] = {}
    waiting = [name]
    while waiting:
        package = lock.package(waiting.pop())
        if package and package.name not in found:
            found[package.name] = package
            waiting += [re.split(r"[\s=<>!~]", spec, maxsplit=1)[0] for spec in package.depends]
    return list(found.values())
