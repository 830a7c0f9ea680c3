"""Where the folders come from."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ddlce import __version__
from ddlce.errors import InputError
from ddlce.settings import load_settings, own_release, own_root
from support.minitree import MiniTree
from support.moduleprefix import make_prefix


def test_a_home_is_filled_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DDLCE_CACHE", "~/cache")
    assert load_settings().cache == tmp_path / "cache"
    assert load_settings(Path("~/root")).root == tmp_path / "root"


@pytest.mark.parametrize("name", ["DDLCE_CACHE", "DDLCE_ROOT"])
def test_an_unknown_user_s_home(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "~no-such-user/x")
    with pytest.raises(InputError, match=f"{name}: .*no user 'no-such-user'"):
        load_settings()


def test_links_in_a_root_are_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else an environment would have two paths, and its files would hold one of them."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "loop").symlink_to("loop")
    assert load_settings(tmp_path / "link").root == tmp_path / "real"
    monkeypatch.setenv("DDLCE_ROOT", str(tmp_path / "link" / "below"))
    assert load_settings().root == tmp_path / "real" / "below"
    assert load_settings(tmp_path / "loop").root == tmp_path / "loop"


def test_a_program_in_a_release_knows_its_root(tmp_path: Path) -> None:
    """As where a site's module is loaded, which says nothing of the root."""
    prefix = make_prefix(tmp_path / "site")
    (prefix / "bin/python").unlink()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    (site,) = prefix.glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith("DDLCE_")}
    env["HOME"] = str(tmp_path / "home")

    def ddlce(*words: str) -> str:
        command = [str(prefix / "bin/python"), "-I", "-m", "ddlce", *words]
        return subprocess.check_output(command, env=env, cwd=tmp_path, text=True)

    assert ddlce("--version") == f"ddlce {__version__} of ddl-ce 1.0.0-01234567\n"
    assert str(prefix) in ddlce("env", "list")
    assert ddlce("env", "list", "--root", str(tmp_path)) == ""
    env["DDLCE_ROOT"] = str(tmp_path)
    assert ddlce("env", "list") == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pkgs": 3}', "\ud800"])
def test_no_root_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert (own_root(), own_release()) == (None, None)
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta/ddl-ce.origin").write_bytes(text.encode(errors="surrogatepass"))
    assert (own_root(), own_release()) == (None, None)


def test_a_small_tree_of_the_tests_publishes_in_itself(
    tree: MiniTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a test's build would replace the channel that a user has named."""
    monkeypatch.setenv("DDLCE_CHANNEL", "/some/where/channel")
    assert "DDLCE_CHANNEL" not in tree.env()
