"""The locks of two releases of one toy environment, which differ in all that users may notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ddlce.files import sha256_file
from ddlce.model.envlock import EnvLock, LockedPackage
from support.minichannel import Pkg

SHA = "ab" * 32


def package(name: str, version: str = "1.0", **fields: Any) -> LockedPackage:
    data = {
        "name": name,
        "version": version,
        "build": "h1_0",
        "subdir": "linux-64",
        "file": f"{name}-{version}-h1_0.conda",
        "sha256": SHA,
        "size": 1_000_000,
        "license": "MIT",
    }
    return LockedPackage.model_validate({**data, **fields})


def lock(*packages: LockedPackage, **fields: Any) -> EnvLock:
    data: dict[str, Any] = {
        "env": "toy",
        "release": "2026.11",
        "platform": "linux-64",
        "manifest": SHA,
        "channels": ["ddl-ce"],
        "specs": ["a"],
        "virtual_packages": {"__glibc": "2.28"},
        "packages": sorted(packages, key=lambda each: each.name),
    }
    return EnvLock.model_validate({**data, **fields})


def locked_package(package: Pkg, path: Path, **more: Any) -> LockedPackage:
    """What a lock has of a package that was packed."""
    record = {
        "name": package.name,
        "version": package.version,
        "build": package.build,
        "subdir": path.parent.name,
        "file": path.name,
        "sha256": sha256_file(path),
        "size": path.stat().st_size,
        "depends": package.depends,
        **more,
    }
    return LockedPackage.of(record, str(path))


OLD = lock(
    package("extension", depends=["torchlike >=2.13,<2.14", "same ==1.0", "python >=3.10"]),
    package("going"),
    package("meta", depends=["torchlike ==2.13"]),
    package("numeric", "2.4"),
    package("plain", noarch="python", depends=["torchlike <2.14"]),
    package("python", "3.11.2"),
    package("same"),
    package("torchlike", "2.13"),
    package("sinking", "1.10"),
    variables={"A": "1"},
)
NEW = lock(
    package("coming", size=9_000_000, license="GPL-3.0-only"),
    package("extension", sha256="cd" * 32, depends=["torchlike >=2.14,<2.15"]),
    package("meta", depends=["torchlike ==2.13"]),
    package("numeric", "3.0", license="BSD-3-Clause"),
    package("plain", noarch="python", depends=["torchlike <2.14"]),
    package("python", "3.12.1"),
    package("same"),
    package("torchlike", "2.14", size=2_000_000),
    package("sinking", "1.9"),
    release="2026.12",
    virtual_packages={"__glibc": "2.34"},
    variables={"A": "2", "B": "x"},
)
