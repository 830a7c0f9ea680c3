"""`ddlce env list`, `gc`, `remove` and `verify`: several releases under one root."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from ddlce.cli.all import offer
from ddlce.engine.index import index_channel
from ddlce.env.layout import ORIGIN, Layout, read_origin
from ddlce.env.names import name_releases
from ddlce.env.verify import verify
from ddlce.modulefile.install import write_modulefiles
from ddlce.trees import remove_tree
from support.minichannel import Pkg, pack
from support.minienv import Site, as_nobody, toy_site

LIB = "lib/python3.11"


def test_a_new_release_becomes_the_default_and_gc_removes_the_old(site: Site) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    old = site.current
    site.manifest.write_text(
        site.manifest.read_text()
        .replace("2026.11", "2026.12")
        .replace("- mini-all", "- miniarch 0.3")
    )
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    new = site.current
    assert new.name.startswith("2026.12-")
    assert verify(old).ok
    listed = {e["prefix"]: e["default"] for e in json.loads(site.ok("env", "list", "--json"))}
    assert listed == {str(old): False, str(new): True}
    assert "is the default release of mini" in site.fails(2, "env", "remove", "mini")
    assert "would remove 1 releases, 4 cached packages" in site.ok("env", "gc", "--dry-run")
    assert old.is_dir()
    assert "removed 0 releases, 0 cached packages" in site.ok("env", "gc", "--keep", "2")
    assert f"removed {old}\nremoved 1 releases, 4 cached packages\n" in site.ok("env", "gc")
    assert not old.exists()
    assert verify(new).ok
    assert {p.name for p in (site.root / "pkgs").glob("*/")} == {
        "miniarch-0.3-h0_0",
        "python-3.11.7-h0_0",
    }
    # What is in use stays usable: the same release can be made again from the cache alone.
    remove_tree(new)
    site.channel = "http://127.0.0.1:9"
    site.ok("env", "create", "mini", "--offline")


def test_remove_takes_an_old_release(site: Site) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    old = site.current
    site.manifest.write_text(site.manifest.read_text().replace("2026.11", "2026.12"))
    site.ok("lock", "mini")
    site.ok("module", "mini")
    site.ok("env", "create", "mini")
    site.ok("module", "mini")
    said = site.ok("env", "remove", f"mini/{old.name}").splitlines()
    modules = [
        site.root / "modulefiles" / name for name in ("lua/mini/2026.11.lua", "tcl/mini/2026.11")
    ]
    assert said == [f"removed {path}" for path in (old, *modules)]
    assert not old.exists()
    assert not any(path.exists() for path in modules)
    assert verify(site.current).ok


def test_gc_takes_the_modulefiles_that_a_killed_one_has_left(site: Site) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    old = site.current
    site.ok("module", "mini")
    site.manifest.write_text(site.manifest.read_text().replace("2026.11", "2026.12"))
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    site.ok("module", "mini")
    remove_tree(old)  # the release is gone, and its modulefiles are there
    site.ok("env", "gc")
    left = [path.name for path in (site.root / "modulefiles").rglob("2026*")]
    assert sorted(left) == ["2026.12", "2026.12.lua"]


def test_a_candidate_leaves_with_its_modulefiles(tmp_path: Path) -> None:
    site = toy_site(tmp_path)
    site.ok("module", "mini")
    old = site.current
    site.manifest.write_text(site.manifest.read_text().replace("toy\n", "toy >=1\n"))
    site.ok("lock", "mini")
    site.ok("env", "create", "mini", "--no-default")
    (new,) = (path for path in old.parent.glob("2026*") if path != old)
    site.ok("module", str(new))
    tried = site.root / "modulefiles-candidate"
    assert len([path for path in tried.rglob("*2026.11*") if path.is_file()]) == 2
    said = site.ok("env", "remove", f"mini/{new.name}")
    assert said.startswith(f"removed {new}\nremoved {tried}/lua/mini/2026.11.lua\n")
    assert [path for path in tried.rglob("*") if path.is_file()] == []
    assert len([path for path in (site.root / "modulefiles").rglob("*2026.11*")]) == 2


def test_a_release_of_the_same_version_does_not_take_the_defaults_module(tmp_path: Path) -> None:
    """`module load mini/2026.11` stays what the default release is."""
    site = toy_site(tmp_path)
    old = site.current
    site.manifest.write_text(site.manifest.read_text().replace("toy\n", "toy >=1\n"))
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    new = site.current
    site.ok("module", "mini")
    text = (site.root / "modulefiles/lua/mini/2026.11.lua").read_text()
    said = site.fails(2, "module", str(old))
    assert f"mini/2026.11 is the module of the default release {new}" in said
    assert (site.root / "modulefiles/lua/mini/2026.11.lua").read_text() == text
    site.ok("module", str(old), "--out", tmp_path / "elsewhere")
    site.ok("env", "default", f"mini/{old.name}")
    assert str(old) in (site.root / "modulefiles/lua/mini/2026.11.lua").read_text()
    # `ddlce all --no-default` comes to the same place with a release that is there already.
    manifest = "mini"
    offer(site.settings, manifest, None, no_default=True)
    assert str(old) in (site.root / "modulefiles/lua/mini/2026.11.lua").read_text()


def test_the_names_for_conda_follow_the_releases(site: Site) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    old = site.current
    names = site.root / "conda" / "envs"
    site.manifest.write_text(site.manifest.read_text().replace("hello", "good morning"))
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    again = site.current  # the same release, otherwise made
    assert again != old
    assert {p.name: p.resolve() for p in names.iterdir()} == {"mini": again, "mini-2026.11": again}
    site.ok("env", "create", "mini", "--lock", old / "conda-meta" / "ddl-ce.lock")
    assert {p.name: p.resolve() for p in names.iterdir()} == {"mini": old, "mini-2026.11": old}
    site.manifest.write_text(site.manifest.read_text().replace("2026.11", "2026.12"))
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    assert {p.name for p in names.iterdir()} == {"mini", "mini-2026.11", "mini-2026.12"}
    site.ok("env", "gc")
    new = site.current
    assert {p.name: p.resolve() for p in names.iterdir()} == {"mini": new, "mini-2026.12": new}


def test_verify_names_everything_that_is_wrong(site: Site) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    prefix = site.current
    assert site.ok("env", "verify", "mini").endswith("files checked: ok\n")
    for folder in (prefix, prefix / "share" / "mini", prefix / "conda-meta"):
        folder.chmod(0o755)
    (prefix / "share" / "mini" / "link.txt").unlink()
    plain = prefix / "share" / "mini" / "plain.txt"
    plain.chmod(0o664)
    plain.write_text("changed\n")
    pyc = next(prefix.glob(f"{LIB}/json/__pycache__/decoder.*.pyc"))
    pyc.chmod(0o644)
    pyc.write_bytes(pyc.read_bytes() + b"\0")
    pyc.chmod(0o444)
    new = prefix / "share" / "mini" / "new.txt"
    new.write_text("new\n")
    new.chmod(0o664)
    (prefix / "conda-meta" / "frozen").unlink()
    lock = prefix / "conda-meta" / "ddl-ce.lock"
    lock.chmod(0o664)
    lock.write_text(lock.read_text().replace("build: h0_0", "build: h1_0", 1))
    done = site.ddlce("env", "verify", "mini", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["modified"] == [str(pyc.relative_to(prefix)), "share/mini/plain.txt"]
    assert report["missing"] == ["share/mini/link.txt"]
    assert report["extra"] == ["share/mini/new.txt"]
    assert set(report["writable"]) == {
        "./",
        "conda-meta/",
        "conda-meta/ddl-ce.lock",
        "share/mini/",
        "share/mini/new.txt",
        "share/mini/plain.txt",
    }
    problems = "\n".join(report["problems"])
    assert "conda-meta/frozen is missing" in problems
    assert "conda-meta/ddl-ce.lock is not the lock that the release was made from" in problems
    assert "package libmini-1.2-h1_0 is in the lock and not in the prefix" in problems
    text = site.ddlce("env", "verify", "mini")
    assert text.returncode == 1
    assert "modified  share/mini/plain.txt\n" in text.stdout
    assert "not ok" in text.stdout


def test_verify_and_list_without_any_environment(site: Site) -> None:
    assert "there is no environment mini" in site.fails(2, "env", "verify", "mini")
    done = site.ddlce("env", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "make one with: ddlce env create" in done.stderr


def test_an_unfinished_release_is_not_listed(site: Site) -> None:
    (site.root / "envs" / "mini" / "2026.11-00000000" / "conda-meta").mkdir(parents=True)
    assert json.loads(site.ok("env", "list", "--json")) == []


def next_release(site: Site, version: str) -> Path:
    """Another release of the toy site's environment, which becomes the default one."""
    site.manifest.write_text(
        re.sub(r'"[\d.]+"\nsummary', f'"{version}"\nsummary', site.manifest.read_text())
    )
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    return site.current


def test_a_rebuilt_package_leaves_the_older_release_whole(tmp_path: Path) -> None:
    site = toy_site(tmp_path)
    old = site.current
    channel = Path(site.channel)
    (channel / "linux-64/toy-1.0-h0_0.conda").unlink()
    for index in channel.rglob("repodata*"):
        index.unlink()
    shutil.rmtree(channel / "linux-64/shards", ignore_errors=True)
    pack(Pkg("toy", files={"etc/toy": "rebuilt\n"}), channel)
    index_channel(channel)
    new = next_release(site, "2026.12")
    assert (new / "etc/toy").read_text() == "rebuilt\n"
    site.ok("env", "clone", "mine", "--from", f"mini/{old.name}")
    assert (site.clones / "mine/etc/toy").read_text() == f"{site.clones}/mine\n"
    site.ok("env", "clone", "newer")
    assert (site.clones / "newer/etc/toy").read_text() == "rebuilt\n"
    # A clone that is cloned needs the package that its release was made of.
    assert "removed 1 releases, 0 cached packages" in site.ok("env", "gc")
    site.ok("env", "clone", "again", "--from", "mine")
    assert (site.clones / "again/etc/toy").read_text() == f"{site.clones}/again\n"
    for name in ("mine", "again"):
        site.ok("env", "remove", name)
    assert "removed 0 releases, 1 cached packages" in site.ok("env", "gc")
    site.ok("env", "clone", "third")
    assert (site.clones / "third/etc/toy").read_text() == "rebuilt\n"


def test_gc_counts_the_releases_of_each_platform(tmp_path: Path) -> None:
    site = toy_site(tmp_path)
    other = site.current.with_name("2026.11-deadbeef")
    shutil.copytree(site.current, other)
    origin = other / ORIGIN
    origin.chmod(0o644)
    origin.write_text(origin.read_text().replace('"linux-64"', '"linux-ppc64le"'))
    assert "would remove 0 releases" in site.ok("env", "gc", "--dry-run")
    old, _new = site.current, next_release(site, "2026.12")
    assert f"removed {old}\nremoved 1 releases" in site.ok("env", "gc")
    assert other.is_dir()


def test_a_release_that_cannot_be_read_keeps_its_names(public: Path) -> None:
    site = toy_site(public)
    old, new = site.current, next_release(site, "2026.12")
    layout = Layout(site.root)
    site.ok("module", f"mini/{old.name}")
    site.ok("module", "mini")
    lua = site.root / "modulefiles/lua/mini"

    def state() -> set[str]:
        return {path.name for path in (*layout.names.iterdir(), *lua.iterdir())}

    everywhere = {"mini", "mini-2026.11", "mini-2026.12"}
    everywhere |= {".modulerc.lua", "2026.11.lua", "2026.12.lua"}
    assert state() == everywhere

    def work() -> None:
        for closed, other in ((old, new), (new, old)):
            (closed / "conda-meta").chmod(0)
            assert read_origin(closed) is None
            name_releases(layout)
            written = write_modulefiles(other, layout)
            assert written.removed == []
            assert written.default == "2026.12" or closed == new
            (closed / "conda-meta").chmod(0o555)
            assert state() == everywhere
            assert '"mini/2026.12"' in (lua / ".modulerc.lua").read_text()
        remove_tree(old)
        name_releases(layout)
        assert len(write_modulefiles(new, layout).removed) == 2
        assert state() == everywhere - {"mini-2026.11", "2026.11.lua"}

    as_nobody(public, work)
