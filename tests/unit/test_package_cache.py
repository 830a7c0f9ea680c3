"""The cache of unpacked packages: known by their sha256, filled by several processes at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import rattler.networking.client
import rattler.package_streaming  # noqa: F401 - here, as not every user may read it

from ddlce.engine.install import CacheLayer, InstallRequest, install
from ddlce.engine.unpack import fill
from ddlce.env.freeze import make_read_only
from ddlce.files import sha256_file
from ddlce.model.envlock import LockedPackage
from ddlce.packagecache import LOCK, find, note_of, sha256_of
from ddlce.trees import remove_tree
from support.minichannel import Pkg, pack
from support.minienv import FORK, as_nobody

#: Only children fill caches: after a fork, nothing of rattler's threads would be left.
FILL = "import json, sys; from pathlib import Path; from ddlce.engine.unpack import fill; "
FILL += "fill([json.loads(sys.argv[1])], [Path(sys.argv[2])])"


def request(pkg: Pkg, channel: Path) -> dict[str, Any]:
    """What `fill` is asked for, of a package that is packed into `channel`."""
    path = pack(pkg, channel)
    known = {"name": pkg.name, "version": pkg.version, "stem": pkg.stem, "noarch": pkg.noarch}
    return known | {"sha256": sha256_file(path), "size": path.stat().st_size, "url": path.as_uri()}


def twins(folder: Path) -> list[dict[str, Any]]:
    """Two builds with one name, version and build string, and other content."""
    return [
        request(Pkg("mpi", build="mpich", files={"share/a": text}), folder / text)
        for text in ("first", "second")
    ]


def test_a_rebuilt_package_takes_no_place_of_another(public: Path) -> None:
    cache, (first, second) = public / "pkgs", twins(public)

    def work() -> None:
        old = fill([first], [cache])["mpi-1.0-mpich"]
        make_read_only(old)
        new = fill([second], [cache])["mpi-1.0-mpich"]
        assert (old / "share/a").read_text() == "first"
        assert (new / "share/a").read_text() == "second"
        assert fill([first], [cache]) == {"mpi-1.0-mpich": old}
        assert fill([second], [cache]) == {"mpi-1.0-mpich": new}
        assert sha256_of(new) == second["sha256"]
        # The older one goes; the newer one is still known.
        note_of(old).unlink()
        remove_tree(old)
        assert find(cache, second["stem"], second["sha256"]) == new
        assert find(cache, first["stem"], first["sha256"]) is None

    as_nobody(public, work)


def test_a_read_only_folder_without_a_note_is_replaced(public: Path) -> None:
    cache, (first, _) = public / "pkgs", twins(public)

    def work() -> None:
        folder = fill([first], [cache])["mpi-1.0-mpich"]
        make_read_only(folder)
        note_of(folder).unlink()
        assert fill([first], [cache]) == {"mpi-1.0-mpich": folder}

    as_nobody(public, work)


def test_two_processes_fill_one_cache(tmp_path: Path) -> None:
    packages = [
        request(
            Pkg(f"p{number}", files={f"share/p{number}/{k}": "x" * 20_000 for k in range(40)}),
            tmp_path / "channel",
        )
        for number in range(5)
    ]
    for round_ in range(8):
        cache, ready, said = tmp_path / f"cache{round_}", FORK.Barrier(2), FORK.SimpleQueue()

        def work(cache: Path = cache, ready: Any = ready, said: Any = said) -> None:
            ready.wait()
            try:
                said.put(len(fill(packages, [cache])))
            except BaseException as error:
                said.put(repr(error))

        processes = [FORK.Process(target=work) for _ in range(2)]
        for process in processes:
            process.start()
        assert [said.get(), said.get()] == [5, 5]
        for process in processes:
            process.join()
        assert len([path for path in cache.iterdir() if path.is_dir()]) == 5


def test_what_a_killed_run_was_unpacking_goes_with_the_next(tmp_path: Path) -> None:
    files: dict[str, bytes | str | Path] = {f"share/{k}": os.urandom(200_000) for k in range(80)}
    package, cache = request(Pkg("big", files=files), tmp_path / "channel"), tmp_path / "pkgs"
    command: list[str | Path] = [sys.executable, "-c", FILL, json.dumps(package), cache]
    process = subprocess.Popen(command)
    while not list(cache.glob(".big*")):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [path for path in cache.iterdir() if path.is_dir()]
    subprocess.run(command, check=True)
    assert {path.name for path in cache.iterdir()} == {
        *(LOCK, "big-1.0-h0_0", "big-1.0-h0_0.lock"),
    }


@pytest.mark.parametrize("name", ["pkgs", "p ä'\"k"])
def test_records_name_the_cache_and_not_what_rattler_was_shown(tmp_path: Path, name: str) -> None:
    first, second = twins(tmp_path)
    command: list[str | Path] = [sys.executable, "-c", FILL, json.dumps(first), tmp_path / name]
    subprocess.run(command, check=True)
    package = LockedPackage(
        name="mpi",
        version="1.0",
        build="mpich",
        subdir="linux-64",
        file="mpi-1.0-mpich.conda",
        sha256=second["sha256"],
        size=second["size"],
    )
    prefix, channels = tmp_path / "env", {"ddl-ce": (tmp_path / "second").as_uri()}
    install(InstallRequest([package], channels, prefix, [CacheLayer(tmp_path / name)], specs=[]))
    record = json.loads((prefix / "conda-meta/mpi-1.0-mpich.json").read_text(encoding="utf-8"))
    folder = find(tmp_path / name, package.stem, package.sha256)
    assert record["extracted_package_dir"] == record["link"]["source"] == str(folder)
    assert folder != tmp_path / name / package.stem
    assert (prefix / "share/a").samefile(tmp_path / name / f"{folder}/share/a")
    assert sorted(path.name for path in prefix.iterdir()) == ["conda-meta", "share"]
