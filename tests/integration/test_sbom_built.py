"""The bill of materials of the built release: nothing compiled is without a component."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddlce.elf import MAGIC
from ddlce.env.layout import Layout
from ddlce.lock import lock_path
from ddlce.model.envlock import EnvLock
from ddlce.sbom.write import make_sboms
from ddlce.settings import load_settings

pytestmark = [
    pytest.mark.built,
    pytest.mark.timeout(1800),  # every package is unpacked
]

SETTINGS = load_settings()


@pytest.fixture(scope="module")
def lock() -> EnvLock:
    return EnvLock.load(lock_path(SETTINGS, "ddl-ce", "linux-64"))


@pytest.fixture(scope="module")
def sbom(lock: EnvLock) -> Any:
    """CycloneDX; it and SPDX are validated as they are made."""
    return json.loads(next(iter(make_sboms(SETTINGS, lock, SETTINGS.channel).values())))


def compiled(prefix: Path) -> set[str]:
    """The ELF files of a prefix."""
    found = set()
    for path in prefix.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as stream:
                if stream.read(len(MAGIC)) == MAGIC:
                    found.add(str(path.relative_to(prefix)))
    return found


def test_every_compiled_file_has_a_component(lock: EnvLock, sbom: Any) -> None:
    prefix = Layout(SETTINGS.root).prefix(lock.env, lock.release, lock.digest)
    listed = {
        where["location"]
        for component in sbom["components"]
        for where in component.get("evidence", {}).get("occurrences", ())
    }
    found = compiled(prefix)
    assert len(found) > 500
    assert found - listed == set()
    assert listed - found == set()


def test_every_package_has_a_licence_and_its_sources(sbom: Any) -> None:
    parts = {component["name"]: component for component in sbom["components"]}
    assert [name for name, part in parts.items() if not part.get("licenses")] == []
    ours = {name for name, part in parts.items() if not part.get("pedigree", {}).get("ancestors")}
    # Made of files of this tree alone.
    assert {"ddl", "ddlce", "lms-torch"} <= ours
    assert ours <= {
        *("ddl", "ddl-ce", "ddl-ce-examples", "ddl-ce-smoke", "ddl-tensorflow", "ddl-torch"),
        *("ddlce", "gxx", "lms-tensorflow", "lms-torch", "mpi", "own-compilers", "private-caches"),
        "python_abi",
    }
    holes = [
        issue["id"]
        for patch in parts["python"]["pedigree"]["patches"]
        for issue in patch.get("resolves", ())
    ]
    assert "CVE-2024-0450" in holes


def test_libraries_inside_wheels_are_named(sbom: Any) -> None:
    inside = {
        component["name"]: {
            (part["name"], part.get("version", "")) for part in component["components"]
        }
        for component in sbom["components"]
        if component.get("components")
    }
    assert {"libgfortran", "libquadmath"} <= {name for name, _ in inside["scipy"]}
    assert {"libpng16", "FreeType"} <= {name for name, _ in inside["pillow"]}
    assert "zipp" in {name for name, _ in inside["setuptools"]}
    assert len(inside["py-rattler"]) > 300
