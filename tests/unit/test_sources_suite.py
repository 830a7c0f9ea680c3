"""Another suite of Debian in the place of the machine's own."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ddlce.model.source import Source
from ddlce.sources.apt import in_suite

DEB822 = """\
Types: deb deb-src
URIs: file:///mirror
Suites: bookworm bookworm-updates bookworm-backports
Components: main

Types: deb
URIs: file:///mirror-security
Suites: bookworm-security
Components: main

Types: deb
URIs: file:///vendor
Suites: nodistro
"""

LINES = """\
deb [signed-by=/k.gpg] file:///mirror bookworm main contrib
deb-src file:///mirror bookworm main
deb file:///mirror bookworm-updates main
deb file:///mirror-security bookworm-security main
deb file:///mirror bookworm-backports main
deb file:///vendor cloud-bookworm main
"""


def test_deb822_keeps_the_release_with_its_updates() -> None:
    text = in_suite("debian.sources", DEB822, "bookworm", "trixie")
    assert text == (
        "Types: deb deb-src\nURIs: file:///mirror\nSuites: trixie trixie-updates\n"
        "Components: main\n\n"
        "Types: deb\nURIs: file:///mirror-security\nSuites: trixie-security\nComponents: main"
    )


def test_one_line_sources_keep_the_release_with_its_updates() -> None:
    text = in_suite("debian.list", LINES, "bookworm", "trixie")
    assert text == (
        "deb [signed-by=/k.gpg] file:///mirror trixie main contrib\n"
        "deb file:///mirror trixie-updates main\n"
        "deb file:///mirror-security trixie-security main\n"
    )


def test_a_rolling_suite_has_no_updates() -> None:
    text = in_suite("debian.sources", DEB822, "bookworm", "sid")
    assert text == "Types: deb deb-src\nURIs: file:///mirror\nSuites: sid\nComponents: main"
    text = in_suite("debian.list", LINES, "bookworm", "sid")
    assert text == "deb [signed-by=/k.gpg] file:///mirror sid main contrib\n"


def test_an_area_takes_the_place_of_the_machines() -> None:
    text = in_suite("debian.sources", DEB822, "bookworm", "trixie", "non-free")
    assert text == (
        "Types: deb deb-src\nURIs: file:///mirror\nSuites: trixie trixie-updates\n"
        "Components: non-free\n\n"
        "Types: deb\nURIs: file:///mirror-security\nSuites: trixie-security\n"
        "Components: non-free"
    )
    text = in_suite("debian.list", LINES, "bookworm", "trixie", "contrib")
    assert text == (
        "deb [signed-by=/k.gpg] file:///mirror trixie contrib\n"
        "deb file:///mirror trixie-updates contrib\n"
        "deb file:///mirror-security trixie-security contrib\n"
    )


@pytest.mark.parametrize(
    ("pool", "suite", "area"),
    [
        ("pool/non-free/n/x/x_1.deb", "trixie", "non-free"),
        ("pool/main/n/x/x_1.deb", "trixie", ""),
        ("pool/updates/main/n/x/x_1.deb", "trixie", ""),
        ("pool/updates/non-free/n/x/x_1.deb", "trixie", "non-free"),
        ("pool/contrib/n/x/x_1.deb", "", ""),  # the machine's own sources have it
        ("", "trixie", ""),
    ],
)
def test_the_area_is_read_from_the_pool(pool: str, suite: str, area: str) -> None:
    fields: dict[str, Any] = {"version": "1", "file": "x", "size": 1, "sha256": "0" * 64}
    source = Source(client="debian-binary", package="x", suite=suite, pool=pool, **fields)
    assert source.area == area


@pytest.mark.parametrize(
    ("field", "value"), [("suite", "trixie"), ("pool", "pool/main/x/x/x_1.deb")]
)
def test_a_suite_and_a_pool_belong_to_a_package_of_debian(field: str, value: str) -> None:
    fields: dict[str, Any] = {
        "version": "1",
        "file": "x",
        "size": 1,
        "sha256": "0" * 64,
        field: value,
    }
    assert getattr(Source(client="debian-binary", package="x", **fields), field) == value
    assert getattr(Source(client="debian-source", package="x", **fields), field) == value
    with pytest.raises(ValidationError, match=f"only Debian's clients may have the field '{field}"):
        Source(client="pypi-sdist", package="x", **fields)


@pytest.mark.parametrize("pool", ["main/x", "/pool/x", "pool/", "pool/a b"])
def test_a_path_in_the_pool_begins_with_it(pool: str) -> None:
    fields: dict[str, Any] = {
        "version": "1",
        "file": "x",
        "size": 1,
        "sha256": "0" * 64,
        "pool": pool,
    }
    with pytest.raises(ValidationError, match="pool"):
        Source(client="debian-source", package="x", **fields)
