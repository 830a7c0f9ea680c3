"""From the manifest, the lock and a wheel's metadata to a v1 recipe of a CUDA package."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.model.source import Source, SourcesLock, WheelMetadata
from ddlce.model.target import Target
from ddlce.nvidia.manifest import NvidiaEntry, NvidiaManifest
from ddlce.repackaged import command_tests, requirements
from ddlce.wheels.depends import KnownPackage, conda_dependencies, conda_version
from ddlce.wheels.recipe import (
    glibc_dependency,
    library_dependencies,
    refuse_newer,
)


@dataclass(frozen=True)
class Toolkit:
    """A manifest with what the lock says of its wheels.

    Attributes:
        path: the manifest.
        manifest: as read.
        sources: conda name → locked wheel.
    """

    path: Path
    manifest: NvidiaManifest
    sources: dict[str, Source] = field(repr=False)

    @property
    def packages(self) -> dict[str, KnownPackage]:
        """What a requirement may mean: canonical PyPI name → the package that has its metadata."""
        return {
            canonicalize_name(entry.pypi): KnownPackage(name, self.sources[name].version)
            for name, entry in self.manifest.packages.items()
            if entry.part != "development"
        }

    @property
    def libraries(self) -> dict[str, str]:
        """Soname → the package that has the library."""
        return {
            soname: name
            for name, entry in self.manifest.packages.items()
            for soname in _wheel(self.sources[name]).sonames
            if entry.part != "development"
        }


def read_toolkit(path: Path, lock: SourcesLock, subdir: str) -> Toolkit:
    """The manifest and its locked wheels.

    Args:
        path: recipes/nvidia/cudaNNN.yaml.
        lock: the locked sources, wheel metadata included.

    Raises:
        InputError: a wrong entry, or a wheel that is not locked.
    """
    manifest = NvidiaManifest.load(path)
    wheels = {
        canonicalize_name(s.package): s
        for s in lock.sources
        if s.client == "pypi-wheel" and s.subdir in (None, subdir)
    }
    sources: dict[str, Source] = {}
    for name, entry in manifest.packages.items():
        pypi = canonicalize_name(entry.pypi)
        if pypi not in wheels:
            raise InputError(
                f"{path}: {name}: no wheel of {pypi} is locked", f"ddlce sources add pypi:{pypi}"
            )
        sources[name] = wheels[pypi]
    return Toolkit(path, manifest, sources)


def nvidia_recipes(toolkit: Toolkit, target: Target) -> list[Recipe]:
    """The recipes of a toolkit's packages.

    Args:
        toolkit: from `read_toolkit`.
        target: what they are for; the wheels' metadata go to its Python's folder.

    Raises:
        InputError: a requirement or shared library that no package has, a wheel that needs a newer
            glibc, no licence; names the package and what to do.
    """
    # Beside the manifests, and a part of every such package's digest.
    installer = tuple(toolkit.path.parent / name for name in toolkit.manifest.installer)
    recipes: list[Recipe] = []
    for name, entry in sorted(toolkit.manifest.packages.items()):
        try:
            data = _recipe(name, entry, toolkit, target)
        except InputError as error:
            raise InputError(f"{toolkit.path}: {name}: {error.message}", error.hint) from error
        recipes.append(Recipe.of_table(toolkit.path, name, data, installer))
    return recipes


def _recipe(name: str, entry: NvidiaEntry, toolkit: Toolkit, target: Target) -> dict[str, Any]:
    source = toolkit.sources[name]
    wheel = _wheel(source)
    if entry.part != "development":
        refuse_newer(wheel, target)
    run = [f"cuda-version {toolkit.manifest.cuda}.*", *entry.add]
    if entry.part == "development":
        run.append(f"{entry.exports} =={_version(entry.exports, toolkit)}")
    else:
        run += conda_dependencies(wheel, target, entry.drop, toolkit.packages)
        run += library_dependencies(wheel, entry, toolkit.libraries)
        run += glibc_dependency(wheel)
    installer = toolkit.manifest.installer[0]
    command = f'python3 "$RECIPE_DIR/{installer}" --python {target.python} --part {entry.part}'
    command += " --libraries-in-place" if entry.libraries_in_place else ""
    command += "".join(f" --exclude {shlex.quote(glob)}" for glob in entry.exclude)
    required = requirements(name, entry, sorted(set(run)))
    required |= _exports(name, entry, toolkit)
    return {
        "schema_version": 1,
        "package": {"name": name, "version": conda_version(wheel.version)},
        "source": [{"url": source.recipe_url, "sha256": source.sha256}],
        "build": {
            "number": 0,
            "string": "h${{ digest }}_0",
            "script": [command, *entry.script],
            # The files are NVIDIA's, and its licence lets them be passed on unmodified. They have
            # no RPATH: a library is found by the RPATH of what loads it, as Python's; a program
            # takes the compiler's libraries of the machine.
            "dynamic_linking": {
                "binary_relocation": False,
                "missing_dso_allowlist": [*wheel.needed, *wheel.sonames],
            },
            "prefix_detection": {"ignore_binary_files": True},
        },
        "requirements": required,
        "tests": _tests(entry, wheel),
        "about": {
            "homepage": wheel.homepage,
            "license": entry.license or toolkit.manifest.license,
            "license_file": _texts(entry, wheel),
            "summary": wheel.summary or f"{source.package}, from its wheel",
        },
        "extra": {"recipe-maintainers": ["ddl-ce"]},
    }


def _exports(name: str, entry: NvidiaEntry, toolkit: Toolkit) -> dict[str, Any]:
    """What is built on the package needs the runtime that it was linked with, or a newer one."""
    if entry.run_exports or entry.part == "runtime":
        return {}
    exported = entry.exports or name
    if not _wheel(toolkit.sources[exported]).sonames:
        return {}  # headers alone
    version = _version(exported, toolkit)
    major = int(version.split(".", 1)[0])
    return {"run_exports": [f"{exported} >={version},<{major + 1}.0a0"]}


def _version(name: str, toolkit: Toolkit) -> str:
    if name not in toolkit.sources:
        raise InputError(f"exports {name!r}, which the file does not have", "mend the name")
    return conda_version(toolkit.sources[name].version)


def _tests(entry: NvidiaEntry, wheel: WheelMetadata) -> list[dict[str, Any]]:
    """Every library is there under its soname; the entry's commands run."""
    tests = command_tests(entry)
    names = [f"lib/{name}" for name in wheel.sonames]
    names = [n for n in names if not any(fnmatchcase(n, g) for g in entry.exclude)]
    if names and entry.part != "development":
        names = [f"lib/**/{name}" if entry.libraries_in_place else name for name in names]
        tests.append({"package_contents": {"files": names}})
    elif not tests:
        files = "include/**/*" if entry.part == "development" else "**/*"
        tests.append({"package_contents": {"files": [files]}})
    return tests


def _texts(entry: NvidiaEntry, wheel: WheelMetadata) -> list[str]:
    texts = [*wheel.license_files, *entry.license_files]
    if not texts:
        raise InputError(
            f"{wheel.name} {wheel.version} has no licence text that its metadata name",
            "name the one inside the wheel under 'license_files'",
        )
    return texts


def _wheel(source: Source) -> WheelMetadata:
    assert source.wheel is not None  # read_toolkit looks among wheels only
    return source.wheel
