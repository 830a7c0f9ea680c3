"""The variants: versions that recipes are built for, by platform, in conda_build_config.yaml."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from rattler_build import JinjaConfig, PlatformConfig, RattlerBuildError, VariantConfig

from ddlce import yamltext
from ddlce.errors import InputError
from ddlce.model.target import Target
from ddlce.platforms import BUILD_PLATFORM, PLATFORMS

VARIANTS = "conda_build_config.yaml"

#: The engine's view of the file.
Variants = VariantConfig

#: The variant key in which the engine's Python binding looks for the platform of `host:` (0.73);
#: what was rendered for does not tell it.
HOST_PLATFORM = "host_platform"

#: The variant key of the platforms that recipes/base/toolchain_cross makes compilers for.
CROSS_TARGETS = "cross_target_platform"


def load_variants(path: Path, subdir: str = BUILD_PLATFORM) -> Variants:
    """Read conda_build_config.yaml with the lines that its selectors keep for a platform.

    Raises:
        InputError: the file is missing or is not a variant file.
    """
    if not path.is_file():
        raise InputError(f"{path}: missing", f"the variants of the recipes stand in {VARIANTS}")
    try:
        variants = VariantConfig.from_conda_build_config(path, JinjaConfig(platforms_of(subdir)))
        ours = {CROSS_TARGETS: [p for p, row in PLATFORMS.items() if not row.own_toolchain]}
        if subdir != BUILD_PLATFORM:
            ours[HOST_PLATFORM] = [subdir]
        return variants.merge(VariantConfig.from_yaml(yamltext.dump(ours)))
    except RattlerBuildError as error:
        raise InputError(f"{path}: {error}", "see docs/packager-guide.md, Variants") from error


def target_of(recipes: Path, subdir: str = BUILD_PLATFORM) -> Target:
    """A platform with its Python and its oldest glibc, as the variants say.

    Raises:
        InputError: as `python_version` and `glibc_floor`.
    """
    return Target(subdir, python_version(recipes, subdir), glibc_floor(recipes, subdir))


def platforms_of(subdir: str) -> PlatformConfig:
    """The engine's view of a build for a platform."""
    return PlatformConfig(
        target_platform=subdir, build_platform=BUILD_PLATFORM, host_platform=subdir
    )


def glibc_floor(recipes: Path, subdir: str = BUILD_PLATFORM) -> str:
    """The oldest glibc that a platform's packages run on: `c_stdlib_version`, "" without one.

    Raises:
        InputError: the variants cannot be read, or name several versions, or what is none.
    """
    path = recipes / VARIANTS
    versions = [str(each) for each in load_variants(path, subdir).get("c_stdlib_version") or []]
    if len(versions) > 1:
        raise InputError(
            f"{path}: c_stdlib_version: expected one version for {subdir}, found {len(versions)}",
            "keep the lowest: what runs on it runs on the others",
        )
    if versions and not re.fullmatch(r"\d+(\.\d+)*", versions[0]):
        raise InputError(
            f"{path}: c_stdlib_version: {versions[0]!r} is no version", 'write one as "2.28"'
        )
    return versions[0] if versions else ""


@functools.cache
def python_version(recipes: Path, subdir: str = BUILD_PLATFORM) -> str:
    """The minor version of a platform's Python, "3.11", as the variants say.

    Raises:
        InputError: there are no variants, or they name no one version of Python.
    """
    path = recipes / VARIANTS
    found = load_variants(path, subdir).get("python") or []
    versions = {match[0] for spec in found if (match := re.match(r"3\.\d+", str(spec)))}
    if len(versions) != 1:
        raise InputError(
            f"{path}: python: expected one version for {subdir}, found {len(versions)}",
            "write it as `3.11.* *_cpython`, with a selector where platforms differ",
        )
    return versions.pop()
