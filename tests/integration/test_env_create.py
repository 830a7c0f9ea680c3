"""`ddlce env create`: immutable releases, whole or not at all."""

from __future__ import annotations

import json
import os
import random
import re
import stat
import struct
from pathlib import Path

import pytest

from ddlce.engine.index import index_channel
from ddlce.env.bytecode import module_of
from ddlce.env.layout import Layout
from ddlce.env.verify import verify
from ddlce.locks import locked
from ddlce.packagecache import LOCK
from ddlce.trees import remove_tree
from support.minichannel import PLACEHOLDER, Pkg, pack
from support.minienv import (
    NOBODY,
    Site,
    can_be_nobody,
    can_mount,
    everything,
    packages_alone,
    run_as,
    served,
    site_of_channel,
    small_disk,
)
from support.run import run
from support.synthetic import make_package

LIB = "lib/python3.11"


def tampered(path: Path) -> Path:
    """Replace a package in a channel by another valid one of the same name."""
    path.unlink()
    return pack(Pkg("libmini", "1.2", files={"share/mini/plain.txt": "evil\n"}), path.parents[1])


def nothing_installed(site: Site) -> bool:
    """No release, no half-made one, no link."""
    return not [p for p in everything(site.root / "envs") if p != site.root / "envs" / "mini"]


def test_a_release_runs_and_knows_only_its_own_place(installed: Site) -> None:
    prefix = installed.current
    assert re.fullmatch(r"2026\.11-[0-9a-f]{8}", prefix.name)
    where = run([prefix / "bin" / "mini-where"])
    assert where.stdout == f"{prefix}/share\none\n"
    script = run([prefix / "bin" / "minimod"])
    assert script.stdout == f"{prefix}/{LIB}/site-packages/minimod/__init__.py\n"
    assert installed.python(prefix, "import mini_prefix; print(mini_prefix.PREFIX)") == str(prefix)
    for path in everything(prefix):
        if path.is_file():
            data = path.read_bytes()
            assert PLACEHOLDER.encode() not in data or path.suffix == ".json", path
            assert b".partial-" not in data, path


def test_a_release_is_read_only_for_everybody(installed: Site) -> None:
    for folder in (installed.current, installed.root / "pkgs"):
        for path in {folder, *everything(folder)} - {folder / LOCK}:
            status = path.lstat()
            if not stat.S_ISLNK(status.st_mode):
                roots = status.st_uid == 0 and stat.S_ISREG(status.st_mode)
                assert not status.st_mode & (0o022 if roots else 0o222), path
                assert status.st_mode & 0o444 == 0o444, path


def test_files_are_links_into_the_read_only_cache(installed: Site) -> None:
    cached = installed.root / "pkgs" / "libmini-1.2-h0_0" / "share" / "mini" / "plain.txt"
    assert cached.samefile(installed.current / "share" / "mini" / "plain.txt")


@pytest.mark.skipif(not can_be_nobody(), reason="needs root, to become another user")
def test_a_user_cannot_change_a_release(installed: Site) -> None:
    target = installed.current / "share" / "mini" / "plain.txt"
    done = run_as(NOBODY, "sh", "-c", f"echo x >> {target}")
    assert done.returncode != 0
    assert target.read_text() == "plain\n"


def test_conda_and_pip_are_told_not_to_change_it(installed: Site, tmp_path: Path) -> None:
    prefix = installed.current
    frozen = json.loads((prefix / "conda-meta" / "frozen").read_text())
    assert frozen == {
        "message": "mini 2026.11 is a release and cannot be changed. "
        "Python packages of your own go on top of it: ddlce env overlay NAME. "
        "To change other packages, make a copy: ddlce env clone NAME"
    }
    done = run(
        [prefix / "bin" / "python", "-m", "pip", "install", "--no-index", "anything"],
        env=os.environ
        | {
            "PYTHONPATH": str(packages_alone(tmp_path / "pip", "pip")),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    assert done.returncode == 1
    assert "externally-managed-environment" in done.stderr
    assert "ddlce env clone NAME" in done.stderr


def test_records_that_stock_clients_read(installed: Site) -> None:
    prefix = installed.current
    state = json.loads((prefix / "conda-meta" / "state").read_text())
    assert state["env_vars"] == {"MINI_GREETING": "hello"}
    history = (prefix / "conda-meta" / "history").read_text()
    assert '# update specs: ["mini-all"]' in history
    assert f"+file://{installed.channel}/linux-64::libmini-1.2-h0_0\n" in history
    condarc = (prefix / ".condarc").read_text()
    assert f"channels:\n  - file://{installed.channel}\n" in condarc
    assert f"  - {installed.root}/pkgs\n" in condarc
    names = {p.name for p in prefix.glob("conda-meta/*.json")}
    assert names == {
        "libmini-1.2-h0_0.json",
        "mini-all-2026.11-0.json",
        "miniarch-0.4-h0_0.json",
        "minimod-1.0-pyh0_0.json",
        "python-3.11.7-h0_0.json",
    }


def test_every_module_has_bytecode_that_is_never_stale(installed: Site) -> None:
    prefix = installed.current
    compiled = list(prefix.rglob("*.pyc"))
    assert prefix / f"{LIB}/__pycache__/filecmp.cpython-311.pyc" in compiled
    kinds = set()
    for pyc in compiled:
        # PEP 552: 1 is checked by nothing, as packages bring it; 0 by the source's time and size.
        kind, time, size = struct.unpack("<III", pyc.read_bytes()[4:16])
        kinds.add(kind)
        source = Path(module_of(str(pyc))).stat()
        assert kind == 1 or (time, size) == (int(source.st_mtime), source.st_size), pyc
    assert kinds == {0, 1}
    record = json.loads((prefix / "conda-meta" / "miniarch-0.4-h0_0.json").read_text())
    name = f"{LIB}/site-packages/miniarch/__pycache__/__init__.cpython-311.pyc"
    assert name in record["files"]
    assert [p["path_type"] for p in record["paths_data"]["paths"] if p["_path"] == name] == [
        "pyc_file"
    ]
    # A template that is not Python is left alone.
    found = {p.name for p in (prefix / f"{LIB}/site-packages/minimod").glob("__pycache__/*")}
    assert found == {"__init__.cpython-311.pyc"}


def test_create_again_does_nothing(installed: Site) -> None:
    before = installed.current.stat().st_mtime_ns
    assert installed.ok("env", "create", "mini") == f"{installed.current} is there already\n"
    assert installed.current.stat().st_mtime_ns == before


def test_two_at_once_make_one(site: Site) -> None:
    site.ok("lock", "mini")
    with locked(Layout(site.root).lock):  # so that both come while somebody is at work
        both = [site.start("env", "create", "mini", "--json") for _ in range(2)]
        for process in both:
            assert process.stderr is not None
            words = process.stderr.readline()
            assert re.fullmatch(r"waiting: process \d+ \(.*\) of \S+ is at work here\n", words)
    results = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    assert sorted(json.loads(stdout)["existed"] for stdout, _ in results) == [False, True]
    assert verify(site.current).ok


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_killed_anywhere_the_next_run_completes(site: Site, seed: int) -> None:
    site.ok("lock", "mini")
    for delay in (random.Random(seed).uniform(0.5, 2.5), 0.9 + seed * 0.3):
        site.killed_after(delay, "env", "create", "mini")
        for prefix in Layout(site.root).releases():
            assert verify(prefix).ok
        link = site.root / "envs" / "mini" / "current"
        assert not link.is_symlink() or link.resolve().is_dir()
    site.ok("env", "create", "mini")
    assert verify(site.current).ok
    assert [p.name for p in (site.root / "envs" / "mini").iterdir() if p.name[0] == "."] == []


def test_a_tampered_package_is_refused_and_nothing_stays(site: Site) -> None:
    site.ok("lock", "mini")
    path = tampered(Path(site.channel) / "linux-64" / "libmini-1.2-h0_0.conda")
    message = site.fails(4, "env", "create", "mini")
    assert f"  {path}: its sha256 is not the locked " in message
    assert nothing_installed(site)
    path.unlink()
    message = site.fails(4, "env", "create", "mini")
    assert f"  {path}: missing\n" in message
    assert nothing_installed(site)


def test_from_a_server_and_tampered_there(site: Site) -> None:
    site.ok("lock", "mini")
    good = Path(site.channel) / "linux-64" / "libmini-1.2-h0_0.conda"
    data = good.read_bytes()
    with served(Path(site.channel)) as url:
        site.channel = url
        tampered(good)
        message = site.fails(4, "env", "create", "mini")
        assert f"{url}/linux-64/libmini-1.2-h0_0.conda: its sha256 is not the locked " in message
        assert nothing_installed(site)
        good.write_bytes(data)
        site.ok("env", "create", "mini")
    assert verify(site.current, quick=True).ok
    (problem, *_) = verify(site.current).problems  # nobody is there to prove it
    assert "cannot be proven: " in problem
    assert f"  - {url}\n" in (site.current / ".condarc").read_text()
    # The server has gone. What is unpacked in the root's cache is enough to install again.
    remove_tree(site.current)
    site.ok("env", "create", "mini", "--offline")
    assert verify(site.current, quick=True).ok


def test_offline_says_what_is_missing(site: Site) -> None:
    site.ok("lock", "mini")
    site.channel = "http://127.0.0.1:9"
    message = site.fails(4, "env", "create", "mini", "--offline")
    assert "  python-3.11.7-h0_0.conda: in no cache, and the channel is on the network\n" in message
    message = site.fails(4, "env", "create", "mini")
    assert "/linux-64/libmini-1.2-h0_0.conda: cannot be fetched: " in message
    assert nothing_installed(site)


def test_a_machine_with_an_older_glibc_is_refused(site: Site) -> None:
    site.manifest.write_text(site.manifest.read_text().replace('"2.36"', '"9.99"'))
    site.ok("lock", "mini")
    message = site.fails(3, "env", "create", "mini")
    assert message.startswith("error: mini 2026.11 needs glibc 9.99, and this machine has ")
    assert nothing_installed(site)


def test_a_lock_for_another_platform_is_refused(site: Site) -> None:
    site.ok("lock", "mini")
    other = site.folder / "other.lock"
    other.write_text(site.lock.read_text().replace("platform: linux-64", "platform: linux-s390x"))
    message = site.fails(3, "env", "create", "mini", "--lock", other)
    assert message.startswith("error: the lock of mini is for linux-s390x, and this machine is ")


def test_a_release_for_another_platform_is_installed_but_never_the_default(
    site: Site, tmp_path: Path
) -> None:
    other = "linux-ppc64le"
    (tmp_path / "prefix" / "share").mkdir(parents=True)
    (tmp_path / "prefix" / "share" / "other").write_text("other\n")
    make_package(Path(site.channel) / other, tmp_path / "prefix", "other")
    index_channel(Path(site.channel))
    text = site.manifest.read_text().replace("- mini-all", "- other")
    text = text.replace("linux-64:", f"{other}:")
    site.manifest.write_text(text)
    site.ok("lock", "mini")
    site.ok("env", "create", "mini", "--platform", other)
    (prefix,) = (site.root / "envs" / "mini").iterdir()  # no link `current` beside it
    assert (prefix / "share" / "other").read_text() == "other\n"
    assert "is there already" in site.ok("env", "create", "mini", "--platform", other)

    lock = site.repo / "envs" / "locks" / f"mini.{other}.lock"
    message = site.fails(2, "env", "create", "--lock", lock, "--platform", "linux-aarch64")
    assert f"{lock} is for {other}, not for linux-aarch64\n" in message
    assert f"hint:  leave --lock out, or say --platform {other}" in message


def test_a_lock_older_than_its_manifest_is_refused(site: Site) -> None:
    site.ok("lock", "mini")
    site.manifest.write_text(site.manifest.read_text().replace("MINI_GREETING", "MINI_OTHER"))
    assert site.fails(2, "env", "create", "mini") == (
        f"error: the lock of mini for linux-64 is older than {site.manifest}\n"
        "hint:  lock it again: ddlce lock mini\n"
    )
    site.lock.unlink()
    assert site.fails(2, "env", "create", "mini") == (
        f"error: there is no lock {site.lock}\nhint:  make it with: ddlce lock\n"
    )


@pytest.mark.skipif(not can_be_nobody(), reason="needs root, to become another user")
def test_a_root_that_is_not_ours(public: Path, mini_channel: Path) -> None:
    site = site_of_channel(public, mini_channel)
    site.ok("lock", "mini")
    site.root.mkdir()
    message = site.fails(3, "env", "create", "mini", user=NOBODY)
    assert f"error: cannot write {site.root}/.lock: Permission denied\n" in message
    assert "--root" in message
    assert everything(site.root) == []


def test_a_full_disk_leaves_nothing(site: Site) -> None:
    if not can_mount(site.folder / "probe"):
        pytest.skip("needs root, to mount a small file system")
    site.ok("lock", "mini")
    with small_disk(site.root, 20):
        message = site.fails(3, "env", "create", "mini")
        assert message.startswith("error: no space left while ")
        assert "--root" in message
        assert nothing_installed(site)
        assert [p for p in (site.root / "pkgs").iterdir() if p.is_dir()] == []
