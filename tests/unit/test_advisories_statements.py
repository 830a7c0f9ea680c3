"""What `recipes/vex.yaml` says of holes is so: the tests that its statements name."""

from __future__ import annotations

import ftplib
import re
from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

from ddlce.advisories.statements import load_statements
from ddlce.platforms import PLATFORMS
from ddlce.sbom.collect import SERIES

RECIPES = Path(__file__).parents[2] / "recipes"
BASE = RECIPES / "base"


def recipe(name: str) -> dict[str, Any]:
    loaded = yaml.safe_load((BASE / name / "recipe.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def build_words(name: str) -> list[str]:
    return (BASE / name / "build.sh").read_text().split()


def test_patches_without_a_number_are_in_the_series() -> None:
    """Each `fixed` that names a patch: the package is made with it."""
    named = 0
    for statement in load_statements(RECIPES / "vex.yaml"):
        if found := re.fullmatch(r"By the patch (\S+)", statement.statement):
            assert statement.status == "fixed"
            assert found[1] in (BASE / statement.package / SERIES).read_text().splitlines()
            named += 1
    assert named >= 9


def test_ftplib_takes_no_address_from_a_server() -> None:
    assert vars(ftplib.FTP)["trust_server_pasv_ipv4_address"] is False


def test_python_takes_the_package_of_expat() -> None:
    assert "--with-system-expat" in build_words("python")
    assert "libexpat" in recipe("python")["requirements"]["host"]
    assert Version(recipe("libexpat")["context"]["version"]) >= Version("2.6.0")


def test_each_platform_has_64_bits() -> None:
    assert {platform.machine for platform in PLATFORMS.values()} <= {"x86_64", "ppc64le", "aarch64"}


def test_ncurses_reads_no_terminfo_of_users_as_root() -> None:
    words = build_words("ncurses")
    assert "--disable-root-environ" in words
    assert {"fix-configure-root-args-option", "debian-env-access;"} <= {*words}


def test_no_program_of_util_linux_is_built() -> None:
    assert "--disable-all-programs" in build_words("libuuid")
    tests = recipe("libuuid")["tests"]
    (contents,) = (test["package_contents"] for test in tests if "package_contents" in test)
    assert "bin/**" in contents["files"]["not_exists"]
