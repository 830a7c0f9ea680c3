"""The release's one file, installed where nothing of ours is: no tree, no Python, no network."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddlce.bundle.description import Bundle
from ddlce.bundle.write import write_bundle
from ddlce.env.layout import Layout
from ddlce.lock import lock_path
from ddlce.model.envlock import EnvLock
from ddlce.settings import load_settings
from ddlce.trees import remove_tree
from support.bundles import run_bundle
from support.emptysystem import empty_system
from support.minienv import everything
from support.run import ok
from support.userlands import LMOD, Userland, userland

pytestmark = [
    pytest.mark.built,
    pytest.mark.timeout(1800),  # an installation, and the first makes the empty system
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap needs root"),
    pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap and debootstrap"),
]

SETTINGS = load_settings()
LOCK = EnvLock.load(lock_path(SETTINGS, "ddl-ce", "linux-64"))
NEXT = LOCK.model_copy(update={"release": "2199.12"})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    folder = tmp_path_factory.mktemp("bundle")
    yield write_bundle(SETTINGS, LOCK, SETTINGS.channel, folder)
    shutil.rmtree(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for root in tmp_path.glob("*/"):
        remove_tree(root)


def run_there(system: Userland, folder: Path, bundle: Bundle, *command: str | Path) -> str:
    """Run a command in a system that sees the folder and the bundle, and nothing of ours."""
    file = Path(bundle.path)
    readable = [file.parent, *([LMOD] if LMOD.exists() and system.name != "debian-12" else [])]
    done = ok(system.run(list(command), writable=[folder], readable=readable))
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "debian-12",
        pytest.param("debian-11", marks=pytest.mark.slow),
        pytest.param("glibc-2.28", marks=pytest.mark.slow),
    ],
)
def test_installed_loaded_and_trained_with(name: str, bundle: Bundle, folder: Path) -> None:
    system = empty_system() if name == "debian-12" else userland(name)
    root = folder / "root"
    said = run_there(system, folder, bundle, "/bin/sh", bundle.path, "--root", root)
    layout = Layout(root)
    prefix = layout.prefix(LOCK.env, LOCK.release, LOCK.digest)
    assert f"{prefix} is installed: {len(LOCK.packages)} packages" in said
    assert layout.current("ddl-ce") == prefix
    assert (layout.names / "ddl-ce").resolve() == prefix
    assert not list(root.glob(".unpack-*"))

    script = f"""
        export LMOD_FAST_TCL_INTERP=no; . {LMOD}/lmod/init/bash
        module use {root}/modulefiles/lua && module load ddl-ce &&
        ddlrun -H localhost:2 python -m ddl_ce_smoke.train
    """
    said = run_there(system, folder, bundle, "/bin/bash", "-c", script)
    assert "2 ranks" in said, said

    again = ("/bin/sh", bundle.path, "--root", root, "--no-smoke")
    assert f"{prefix} is there already" in run_there(system, folder, bundle, *again)


def test_a_second_release_beside_the_first(bundle: Bundle, folder: Path) -> None:
    """In a root with a space and an umlaut; then the older bundle again."""
    root = folder / "opt ü" / "ddl-ce"
    newer = write_bundle(SETTINGS, NEXT, SETTINGS.channel, folder / "out")
    layout = Layout(root)
    old, new = (layout.prefix(k.env, k.release, k.digest) for k in (LOCK, NEXT))

    def install(file: Bundle, *options: str) -> subprocess.CompletedProcess[str]:
        return run_bundle(file.path, "--root", root, "--no-smoke", *options, folder=folder)

    assert install(bundle).returncode == 0
    assert layout.current("ddl-ce") == old
    assert install(newer, "--no-default").returncode == 0
    assert layout.current("ddl-ce") == old
    assert layout.is_candidate(new)
    assert not list((root / "modulefiles").rglob("2199.12*"))
    assert len(list((root / "modulefiles-candidate").rglob("2199.12*"))) == 2
    files = {path: path.lstat() for path in everything(old)}
    done = ok(install(newer))
    assert layout.current("ddl-ce") == new
    assert {path: path.lstat() for path in everything(old)}.keys() == files.keys()
    python = old / "bin" / "python"
    assert subprocess.check_output([python, "-c", "import ddl; print(1)"], text=True) == "1\n"

    before = everything(root)
    done = install(bundle)
    assert done.returncode == 2, done
    assert done.stderr.splitlines()[0] == (
        f"error: {root} has ddl-ce 2199.12, which is newer than {LOCK.release} in "
        f"{Path(bundle.path).name}"
    )
    assert everything(root) == before
    assert install(bundle, "--older").returncode == 0
    assert layout.current("ddl-ce") == new


@pytest.mark.slow
def test_killed_and_run_again(bundle: Bundle, folder: Path) -> None:
    """Killed as soon as one of these is there; the last run finds and removes what they left."""
    root = folder / "root"
    marks: tuple[str, ...] = (
        ".unpack-*/boot/unpack.py",
        ".unpack-*/python/bin",
        ".unpack-*/channel/*/*.conda",
    )
    marks += ("channel/.generation-*", "pkgs/*/info", "envs/ddl-ce/.*/bin", "envs/ddl-ce/current")
    for mark in marks:
        process = subprocess.Popen(
            ["sh", bundle.path, "--root", str(root), "--no-smoke"], start_new_session=True
        )
        while process.poll() is None and not any(root.glob(mark)):
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, f"it had ended before it was killed at {mark}"
    ok(run_bundle(bundle.path, "--root", root, "--no-smoke", folder=folder))
    layout = Layout(root)
    prefix = layout.current("ddl-ce")
    assert prefix == layout.prefix(LOCK.env, LOCK.release, LOCK.digest)
    assert not list(root.glob(".unpack-*"))
    assert not list(root.glob("envs/ddl-ce/.*"))
    subprocess.run([prefix / "bin" / "ddlce", "env", "verify", prefix], check=True)


@pytest.mark.slow
def test_two_at_once(bundle: Bundle, folder: Path) -> None:
    root = folder / "root"
    command = ["sh", bundle.path, "--root", str(root), "--no-smoke"]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert Layout(root).current("ddl-ce")
    assert not list(root.glob(".unpack-*"))


def test_the_channel_in_it_is_one_for_clients(bundle: Bundle, folder: Path) -> None:
    channel = folder / "channel"
    ok(run_bundle(bundle.path, "--extract", "channel", channel, folder=folder))
    found = {
        (subdir.name, file)
        for subdir in channel.glob("*/")
        for file in json.loads((subdir / "repodata.json").read_text())["packages.conda"]
    }
    assert found == {(package.subdir, package.file) for package in LOCK.packages}
    total = sum(package.size for package in LOCK.packages)
    assert bundle.size <= 1.05 * total
