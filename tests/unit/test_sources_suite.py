"""Another suite of Debian in the place of the machine's own."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from ddlce.model.source import Source
from ddlce.sources.apt import in_suite

DEB822 = """\
Types: deb deb-src
URIs: file:///mirror
Suites: bookworm bookworm-updates
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
deb file:///vendor cloud-bookworm main
"""


def test_deb822_keeps_the_release_alone() -> None:
    text = in_suite("debian.sources", DEB822, "bookworm", "trixie")
    assert text == "Types: deb deb-src\nURIs: file:///mirror\nSuites: trixie\nComponents: main"


def test_one_line_sources_keep_the_release_alone() -> None:
    text = in_suite("debian.list", LINES, "bookworm", "trixie")
    assert text == "deb [signed-by=/k.gpg] file:///mirror trixie main contrib\n"


def test_a_suite_belongs_to_a_package_of_debian() -> None:
    fields = {"version": "1", "file": "x", "size": 1, "sha256": "0" * 64, "suite": "trixie"}
    assert Source(client="debian-binary", package="x", **fields).suite == "trixie"
    assert Source(client="debian-source", package="x", **fields).suite == "trixie"
    with pytest.raises(ValidationError, match="only Debian's clients"):
        Source(client="pypi-sdist", package="x", **fields)
