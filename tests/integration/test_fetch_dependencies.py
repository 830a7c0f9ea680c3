"""`ddlce sources add --with-dependencies`: pip's real resolver on a folder of real wheels."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ddlce.model.source import SourcesLock
from ddlce.recipes.sets import load_set_recipes
from ddlce.settings import Settings
from support.sourceserver import ddlce, lock
from support.wheelfiles import VARIANTS, lock_wheel, make_wheel

MIT = ("License-Expression: MIT", "Home-page: https://demo.org")


@pytest.fixture
def shelf(settings: Settings, wheelhouse: Path) -> Path:
    """A tree with a locked wheel `base`, a set `full`, and a folder of wheels for pip."""
    (settings.recipes / "conda_build_config.yaml").write_text(VARIANTS)
    (settings.recipes / "wheels").mkdir()
    (settings.recipes / "wheels" / "install_wheel.py").write_text("")
    (settings.recipes / "wheels" / "wheels.yaml").write_text("wheels:\n  base:\n")
    (settings.recipes / "sets" / "full").mkdir(parents=True)
    lock(settings, lock_wheel(make_wheel(wheelhouse, "base", "1.0")))
    make_wheel(wheelhouse, "base", "2.0")
    return wheelhouse


def needs(*requirements: str, licence: tuple[str, ...] = MIT) -> tuple[str, ...]:
    return (*licence, *(f"Requires-Dist: {each}" for each in requirements))


def add(settings: Settings, *arguments: str) -> tuple[int, str]:
    done = ddlce(settings, "sources", "add", "--with-dependencies", *arguments)
    return done.returncode, done.stdout + done.stderr


def locked(settings: Settings) -> dict[str, str]:
    return {s.package: s.version for s in SourcesLock.load(settings.sources_lock).sources}


def table(settings: Settings, name: str = "wheels") -> Path:
    return settings.recipes / "wheels" / f"{name}.yaml"


def test_all_that_is_missing_comes_in_one_round(shelf: Path, settings: Settings) -> None:
    make_wheel(shelf, "app", metadata=needs("mid>=1", "base"))
    make_wheel(shelf, "mid", metadata=needs("leaf; python_version < '3.12'"))
    make_wheel(shelf, "leaf")
    code, said = add(settings, "--set", "full", "pypi:app")
    assert code == 0, said
    assert locked(settings) == {"base": "1.0", "app": "1.0", "mid": "1.0", "leaf": "1.0"}
    assert [*yaml.safe_load(table(settings, "full").read_text())["wheels"]] == [
        *("app", "leaf", "mid"),
    ]
    assert "3 packages are in" in said
    assert "to do there: 0" in said
    assert yaml.safe_load(table(settings).read_text()) == {"wheels": {"base": None}}
    recipes = load_set_recipes(settings, "full")
    assert recipes["app"].data["requirements"]["run"][1:] == ["base", "mid >=1"]
    before = (settings.sources_lock.read_bytes(), table(settings, "full").read_bytes())
    code, said = add(settings, "--set", "full", "pypi:app==1.0")
    assert code == 0, said
    assert "all of it is there already" in said
    assert (settings.sources_lock.read_bytes(), table(settings, "full").read_bytes()) == before


def test_what_the_metadata_does_not_say_is_to_do(shelf: Path, settings: Settings) -> None:
    make_wheel(shelf, "app", metadata=("License: Custom",), license_text=None, module=False)
    code, said = add(settings, "pypi:app")
    assert code == 0, said
    text = table(settings).read_text()
    for field in ("license", "license_files", "homepage", "imports"):
        assert f"    # to do: {field}: app 1.0 " in text
        assert f"  app: {field}: app 1.0 " in said
    assert "to do there: 4" in said
    assert ddlce(settings, "plan").returncode == 2  # until it is done


def test_extras_become_dependencies(shelf: Path, settings: Settings) -> None:
    make_wheel(shelf, "app", metadata=needs("mid[fast]>=1"))
    extra = ("Provides-Extra: fast", "Provides-Extra: all", "Provides-Extra: slow")
    mid = needs("leaf>2; extra == 'all'", "mid[all]; extra == 'fast'", "no; extra == 'slow'")
    make_wheel(shelf, "mid", metadata=(*extra, *mid))
    make_wheel(shelf, "leaf", "3.0")
    code, said = add(settings, "--set", "full", "pypi:app")
    assert code == 0, said
    run = load_set_recipes(settings, "full")["app"].data["requirements"]["run"]
    assert {*run[1:]} == {"leaf >2,!=2.post.*", "mid", "mid >=1"}


def test_what_is_left_out_is_not_locked_nor_what_only_it_needs(
    shelf: Path, settings: Settings
) -> None:
    make_wheel(shelf, "app", metadata=needs("heavy", "mid"))
    make_wheel(shelf, "heavy", metadata=needs("leaf", "mid"))
    make_wheel(shelf, "mid")
    make_wheel(shelf, "leaf")
    code, said = add(settings, "--without", "heavy", "pypi:app")
    assert code == 0, said
    assert {*locked(settings)} == {"base", "app", "mid"}
    assert "# to do: drop: it requires heavy, which was left out; say why" in (
        table(settings).read_text()
    )


def test_no_locked_version_changes(shelf: Path, settings: Settings) -> None:
    make_wheel(shelf, "app", metadata=needs("mid"))
    make_wheel(shelf, "mid", metadata=needs("base>=2"))
    before = (settings.sources_lock.read_bytes(), table(settings).read_bytes())
    code, said = add(settings, "pypi:app")
    assert code == 2
    assert "mid 1.0 requires 'base>=2', and base 1.0 is locked" in said
    code, said = add(settings, "pypi:base==2.0")
    assert code == 2
    assert "pypi:base==2.0: 1.0 is locked" in said
    assert "ddlce sources update pypi:base==2.0" in said
    assert (settings.sources_lock.read_bytes(), table(settings).read_bytes()) == before


def test_an_older_version_that_fits_is_chosen(shelf: Path, settings: Settings) -> None:
    make_wheel(shelf, "app", "1.0", metadata=needs("base"))
    make_wheel(shelf, "app", "2.0", metadata=needs("base>=2"))
    code, said = add(settings, "pypi:app")
    assert code == 0, said
    assert locked(settings)["app"] == "1.0"


def test_a_wheel_for_a_newer_glibc_is_not_chosen(shelf: Path, settings: Settings) -> None:
    make_wheel(shelf, "app", metadata=needs("arch"))
    make_wheel(shelf, "arch", "1.0", tag="cp311-cp311-manylinux_2_17_x86_64")
    make_wheel(shelf, "arch", "2.0", tag="cp311-cp311-manylinux_2_34_x86_64")
    code, said = add(settings, "pypi:app")
    assert code == 0, said
    assert locked(settings)["arch"] == "1.0"


def test_what_nobody_has_is_said_in_one_line(shelf: Path, settings: Settings) -> None:
    make_wheel(shelf, "app", metadata=needs("nowhere"))
    before = (settings.sources_lock.read_bytes(), table(settings).read_bytes())
    code, said = add(settings, "pypi:app")
    assert code == 4
    assert "No matching distribution found for nowhere" in said
    assert "Traceback" not in said
    assert (settings.sources_lock.read_bytes(), table(settings).read_bytes()) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--with-dependencies", "pypi-sdist:app"], "only wheels say what they depend on"),
        (["--with-dependencies", "--set", "no", "pypi:app"], "there is no set 'no'"),
        (["--with-dependencies", "--beside", "pypi:app"], "it takes none of --file"),
        (["--set", "full", "pypi:app"], "need --with-dependencies"),
        (["--without", "x", "pypi:app"], "need --with-dependencies"),
    ],
)
def test_what_does_not_go_together(
    shelf: Path, settings: Settings, arguments: list[str], words: str
) -> None:
    make_wheel(shelf, "app")
    done = ddlce(settings, "sources", "add", *arguments)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert {*locked(settings)} == {"base"}
