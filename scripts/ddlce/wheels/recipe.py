"""From the manifest, the lock and a wheel's metadata to a v1 recipe."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.model.source import Source, SourcesLock, WheelMetadata
from ddlce.model.target import Target
from ddlce.platforms import BUILD_PLATFORM
from ddlce.repackaged import TableEntry, command_tests, compiled_for, import_tests, requirements
from ddlce.wheels.depends import (
    KnownPackage,
    conda_dependencies,
    conda_version,
    conda_version_spec,
    depends_on_python,
)
from ddlce.wheels.gaps import find_gaps
from ddlce.wheels.manifest import WheelEntry, WheelsManifest

#: Unpacks any wheel; beside the manifest, so that it is part of every such package's digest.
INSTALLER = "install_wheel.py"

#: Makes libraries prefer their own functions; a part of the packages whose entries ask for it.
SYMBOLIC = "symbolic.py"

#: The texts that the installer takes out of a wheel, whose metadata may name its authors as well.
LICENCES = re.compile(
    r"[^/]+\.dist-info/(licenses/.*|(licen[cs]e|copying|notice|copyright)[^/]*)", re.IGNORECASE
)

#: Shared libraries that wheels leave to the system, and the packages that have them.
LIBRARIES = {
    "libstdc++.so.6": "libstdcxx",
    "libgcc_s.so.1": "libgcc",
    "libz.so.1": "libzlib",
    "libmpi.so.12": "mpich",
}


@dataclass(frozen=True)
class Others:
    """What the wheels of a table may stand on, besides each other.

    Attributes:
        packages: canonical PyPI name → a package that another table makes.
        libraries: soname → the package that has the library.
    """

    packages: Mapping[str, KnownPackage] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)


def wheel_recipes(
    manifest: Path,
    lock: SourcesLock,
    target: Target,
    others: Others | None = None,
) -> list[Recipe]:
    """Recipes of all wheel packages that exist for a platform, sorted by name.

    Args:
        manifest: recipes/wheels/wheels.yaml, or the table of a variant beside it.
        lock: the locked sources, wheel metadata included.
        others: what a variant's table finds elsewhere.

    Raises:
        InputError: a wrong manifest entry, a wheel that is not locked or needs a newer glibc, a
            requirement or shared library that no package has, no licence; names the wheel and
            what to do.
    """
    parsed = WheelsManifest.load(manifest)
    others = others or Others()
    ours = {**others.packages, **_packages(parsed, lock)}
    recipes: list[Recipe] = []
    for name, entry in sorted(parsed.wheels.items()):
        source = _find(lock, name, entry, target.subdir, manifest)
        if source is None:
            continue
        assert source.wheel is not None  # _find looks among wheels only
        try:
            refuse_newer(source.wheel, target)
            needed = library_dependencies(source.wheel, entry, others.libraries)
            data = _recipe(name, entry, source, source.wheel, target, ours, needed)
            tools = (INSTALLER, *([SYMBOLIC] if entry.symbolic else ()))
            files = (*(manifest.parent / tool for tool in tools), *_texts(entry, manifest.parent))
        except InputError as error:
            raise InputError(f"{manifest}: {name}: {error.message}", error.hint) from error
        recipes.append(Recipe.of_table(manifest, name, data, files))
    return recipes


def wheel_packages(manifest: Path, lock: SourcesLock) -> dict[str, KnownPackage]:
    """The packages made from wheels, by canonical PyPI name.

    Raises:
        InputError: a wrong manifest entry.
    """
    return _packages(WheelsManifest.load(manifest), lock)


def _packages(manifest: WheelsManifest, lock: SourcesLock) -> dict[str, KnownPackage]:
    """The packages that a requirement may mean, by canonical PyPI name."""
    locked = {canonicalize_name(s.package): s.version for s in lock.sources if s.wheel}
    packages: dict[str, KnownPackage] = {}
    for name, entry in manifest.wheels.items():
        pypi = canonicalize_name(entry.pypi or name)
        for known in {pypi, canonicalize_name(entry.distribution or pypi)}:
            packages[known] = KnownPackage(name, entry.version or locked.get(pypi, ""))
    return packages


def _find(
    lock: SourcesLock, name: str, entry: WheelEntry, subdir: str, manifest: Path
) -> Source | None:
    """The locked wheel for the platform; None where only other platforms have one."""
    pypi = canonicalize_name(entry.pypi or name)
    wheels = [
        s
        for s in lock.sources
        if (s.client, canonicalize_name(s.package)) == ("pypi-wheel", pypi)
        and entry.version in ("", s.version)
    ]
    if not wheels:
        wanted = f"{pypi}=={entry.version}" if entry.version else pypi
        raise InputError(
            f"{manifest}: {name}: no wheel of {wanted} is locked",
            f"ddlce sources add pypi:{wanted}",
        )
    fitting = [s for s in wheels if s.subdir in (None, subdir)]
    if len(fitting) > 1:
        versions = ", ".join(s.version for s in fitting)
        raise InputError(
            f"{manifest}: {name}: sources.lock has several wheels of {pypi}: {versions}",
            f"name one as 'version', or keep one: ddlce sources update pypi:{pypi}",
        )
    return fitting[0] if fitting else None


def _recipe(
    name: str,
    entry: WheelEntry,
    source: Source,
    wheel: WheelMetadata,
    target: Target,
    ours: Mapping[str, KnownPackage],
    libraries: list[str],
) -> dict[str, Any]:
    if not SpecifierSet(wheel.requires_python).contains(f"{target.python}.99"):
        raise InputError(
            f"{wheel.name} {wheel.version} does not support Python {target.python} "
            f"(it requires {wheel.requires_python})",
            f"lock an older version: ddlce sources add pypi:{source.package}==VERSION",
        )
    for gap in find_gaps(entry, wheel):
        raise InputError(gap.message, gap.hint)
    run = [
        *_python_dependencies(wheel, target),
        *conda_dependencies(wheel, target, entry.drop, ours),
        *libraries,
        *entry.add,
    ]
    compiler = {"build": [f"python {target.python}.*"]} if _is_compiled(wheel, target) else {}
    return {
        "schema_version": 1,
        "package": {"name": name, "version": conda_version(wheel.version)},
        "source": [{"url": source.recipe_url, "sha256": source.sha256}],
        "build": _build(entry, wheel, target),
        "requirements": {**compiler, **requirements(name, entry, run)},
        "tests": _tests(entry, wheel),
        "about": _about(entry, wheel, source),
        "extra": {"recipe-maintainers": ["ddl-ce"]},
    }


def refuse_newer(wheel: WheelMetadata, target: Target) -> None:
    """Fail on a wheel that does not run on the oldest glibc that the packages shall run on.

    Raises:
        InputError: it needs a newer one.
    """
    floor = glibc_floor(wheel)
    if target.glibc and Version(floor or "0") > Version(target.glibc):
        raise InputError(
            f"{wheel.name} {wheel.version} needs glibc {floor}; "
            f"packages for {target.subdir} run on {target.glibc}",
            f"lock one that fits: ddlce sources add pypi:{wheel.name}, or leave the package out; "
            "the floor is c_stdlib_version in recipes/conda_build_config.yaml",
        )


def _is_compiled(wheel: WheelMetadata, target: Target) -> bool:
    """Whether the package gets bytecode: it is for one Python, which the build machine runs."""
    return not wheel.pure and target.subdir == BUILD_PLATFORM


def _build(entry: WheelEntry, wheel: WheelMetadata, target: Target) -> dict[str, Any]:
    python = target.python
    tag = "py" if wheel.pure else f"py{python.replace('.', '')}"
    build: dict[str, Any] = {
        "number": 0,
        "string": f"{entry.build_prefix}{tag}h${{{{ digest }}}}_0",
        "script": [f'python3 "$RECIPE_DIR/{INSTALLER}" --python {python}'],
    }
    if wheel.pure:
        build["noarch"] = "python"
        if wheel.scripts:
            build["python"] = {"entry_points": [f"{k} = {v}" for k, v in wheel.scripts.items()]}
    else:
        # A wheel's libraries find each other already; rewriting them breaks what upstream tested.
        build["dynamic_linking"] = {"binary_relocation": False}
        if entry.ignore_needed:
            build["dynamic_linking"]["missing_dso_allowlist"] = entry.ignore_needed
        build["prefix_detection"] = {"ignore_binary_files": True}
        build["script"][0] += " --scripts"
        build["script"][0] += "".join(
            f" --library {name}" for name in _needed(wheel, entry) if name in LIBRARIES
        )
        # The engine's own bytecode would carry the time of the build.
        build["python"] = {"skip_pyc_compilation": ["**/*.py"]}
    if _is_compiled(wheel, target):
        build["script"][0] += ' --compiler "$BUILD_PREFIX/bin/python"'
    build["script"][0] += "".join(f" --exclude {shlex.quote(glob)}" for glob in entry.exclude)
    if entry.distribution:
        build["script"][0] += f" --distribution {shlex.quote(entry.distribution)}"
    build["script"] += _link_commands(entry, python)
    for library in entry.symbolic:
        path = f"lib/python{python}/site-packages/{library}"
        build["script"].append(f'python3 "$RECIPE_DIR/{SYMBOLIC}" "$PREFIX/{path}"')
    if entry.prefer_others:
        build["variant"] = {"down_prioritize_variant": 1}
    return build


def _link_commands(entry: WheelEntry, python: str) -> list[str]:
    """Commands that make the entry's links."""
    site = f"lib/python{python}/site-packages"
    commands = []
    for link, folder in entry.links.items():
        parent = posixpath.dirname(f"{site}/{link}")
        commands.append(f'mkdir -p "$PREFIX/{parent}"')
        commands.append(f'ln -s {posixpath.relpath(folder, parent)} "$PREFIX/{site}/{link}"')
    return commands


def _python_dependencies(wheel: WheelMetadata, target: Target) -> list[str]:
    python = target.python
    if not wheel.pure:
        return [*compiled_for(python), *glibc_dependency(wheel)]
    if depends_on_python(wheel, target):
        major, minor = python.split(".")
        return [f"python >={python},<{major}.{int(minor) + 1}.0a0"]
    required = conda_version_spec(SpecifierSet(wheel.requires_python))
    return [f"python {required or f'>={python}'}"]


def glibc_dependency(wheel: WheelMetadata) -> list[str]:
    """The match spec of the glibc that a wheel needs; none where it needs none."""
    floor = glibc_floor(wheel)
    return [f"__glibc >={floor},<3.0.a0"] if floor else []


def glibc_floor(wheel: WheelMetadata) -> str:
    """The glibc that the wheel promises to need by its tags, else the one its symbols need.

    Of several tags, each names a glibc that suffices: the lowest is the promise.
    """
    old = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
    found: list[str] = []
    for tag in wheel.tags:
        platform = tag.rsplit("-", 1)[-1]
        if match := re.match(r"manylinux_(\d+)_(\d+)_", platform):
            found.append(f"{match[1]}.{match[2]}")
        elif (name := platform.split("_")[0]) in old:
            found.append(old[name])
    promised = min(found, key=Version, default="0")
    floor = max(promised, wheel.glibc or "0", key=Version)
    return "" if floor == "0" else floor


def library_dependencies(
    wheel: WheelMetadata, entry: TableEntry, others: Mapping[str, str]
) -> list[str]:
    """The packages that have the libraries which a wheel needs and does not bundle, sorted.

    Args:
        entry: what its table says; `ignore_needed` counts.
        others: soname → package, beside LIBRARIES.

    Raises:
        InputError: no package is known to have a library.
    """
    packages = {**LIBRARIES, **others}
    needed = _needed(wheel, entry)
    unknown = [soname for soname in needed if soname not in packages]
    if unknown:
        raise InputError(
            f"{wheel.name} {wheel.version} needs {', '.join(unknown)}, which it does not bundle "
            "and no package is known to have",
            "if it is optional at run time, name it under 'ignore_needed' in wheels.yaml; else "
            "make a package of it and add it to LIBRARIES in scripts/ddlce/wheels/recipe.py",
        )
    return sorted({packages[soname] for soname in needed})


def _needed(wheel: WheelMetadata, entry: TableEntry) -> list[str]:
    return [soname for soname in wheel.needed if soname not in entry.ignore_needed]


def _tests(entry: WheelEntry, wheel: WheelMetadata) -> list[dict[str, Any]]:
    return [*import_tests(entry, wheel.imports), *command_tests(entry)]


def _about(entry: WheelEntry, wheel: WheelMetadata, source: Source) -> dict[str, Any]:
    return {
        "homepage": entry.homepage or wheel.homepage,
        "license": entry.license or wheel.license,
        "license_file": [*filter(LICENCES.fullmatch, wheel.license_files), *entry.license_files],
        "summary": wheel.summary or f"{source.package}, from its wheel",
    }


def _texts(entry: WheelEntry, folder: Path) -> list[Path]:
    texts = [folder / name for name in entry.license_files]
    for text in texts:
        if not text.is_file():
            raise InputError(f"license_files: {text} does not exist")
    return texts
