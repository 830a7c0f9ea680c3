"""Installing packages from a folder: what is hashed is what is unpacked, and it stays inside."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ddlce.engine import install as module
from ddlce.engine.install import CacheLayer, InstallRequest, install
from ddlce.engine.worker import call
from ddlce.errors import SourceError
from ddlce.files import sha256_file
from ddlce.model.envlock import LockedPackage
from ddlce.packagecache import find
from support.minichannel import Pkg, pack


def lock(pkg: Pkg, channel: Path) -> LockedPackage:
    """Pack a package into `channel` and lock it."""
    path = pack(pkg, channel)
    return LockedPackage(
        name=pkg.name,
        version=pkg.version,
        build=pkg.build,
        subdir=path.parent.name,
        file=path.name,
        sha256=sha256_file(path),
        size=path.stat().st_size,
        noarch=pkg.noarch,  # type: ignore[arg-type]
    )


def run(tmp_path: Path, *packages: LockedPackage) -> Path:
    """Install packages of `tmp_path/channel`; returns the prefix."""
    prefix = tmp_path / "env" / "prefix"
    channels = {"ddl-ce": (tmp_path / "channel").as_uri()}
    install(
        InstallRequest(list(packages), channels, prefix, [CacheLayer(tmp_path / "pkgs")], specs=[])
    )
    return prefix


def good() -> Pkg:
    return Pkg("good", files={"share/good.txt": "good\n", "share/link": "-> good.txt"})


def test_a_package_is_installed_and_kept_unpacked(tmp_path: Path) -> None:
    package = lock(good(), tmp_path / "channel")
    prefix = run(tmp_path, package)
    assert (prefix / "share/link").read_text() == "good\n"
    assert find(tmp_path / "pkgs", package.stem, package.sha256) == tmp_path / "pkgs" / package.stem
    assert sorted(path.name for path in prefix.iterdir()) == ["conda-meta", "share"]
    shutil.rmtree(prefix)
    shutil.rmtree(tmp_path / "channel")  # the cache is enough
    assert (run(tmp_path, package) / "share/good.txt").read_text() == "good\n"


def test_a_package_that_is_swapped_after_it_was_looked_at_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = lock(good(), tmp_path / "channel")
    evil = pack(Pkg("good", files={"share/good.txt": "evil\n"}), tmp_path / "other")
    path = tmp_path / "channel" / "linux-64" / package.file
    start = call

    def swap_and_start(*arguments: Any) -> Any:
        shutil.copyfile(evil, path)
        return start(*arguments)

    monkeypatch.setattr(module, "call", swap_and_start)
    with pytest.raises(SourceError, match=f"{path}: its sha256 is not the locked"):
        run(tmp_path, package)
    assert not (tmp_path / "env" / "prefix" / "share").exists()
    assert [p for p in (tmp_path / "pkgs").iterdir() if p.is_dir()] == []


def test_no_record_is_brought_to_the_disk_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who installs does that once for all; for hundreds of packages, one by one takes minutes."""
    package = lock(good(), tmp_path / "channel")
    code = "import json, os, sys; from ddlce.engine.install import _install\n"
    code += "os.fsync = lambda _: os._exit(9)\n_install(json.loads(sys.argv[1])); os._exit(0)"

    def work(_module: str, request: dict[str, Any], *_: Any) -> None:
        subprocess.run([sys.executable, "-c", code, json.dumps(request)], check=True)

    monkeypatch.setattr(module, "call", work)
    assert (run(tmp_path, package) / "share/good.txt").read_text() == "good\n"


def test_a_cache_that_does_not_hold_the_locked_package_is_not_used(tmp_path: Path) -> None:
    evil = lock(Pkg("good", files={"share/good.txt": "evil\n"}), tmp_path / "channel")
    shutil.rmtree(run(tmp_path, evil))
    shutil.rmtree(tmp_path / "channel")
    package = lock(good(), tmp_path / "channel")
    assert (run(tmp_path, package) / "share/good.txt").read_text() == "good\n"


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    package = lock(good(), tmp_path / "channel")
    path = tmp_path / "channel" / "linux-64" / package.file
    path.write_bytes(b"PK, but not really")
    package = package.model_copy(update={"sha256": sha256_file(path)})
    with pytest.raises(SourceError, match=f"{path}: cannot be unpacked: "):
        run(tmp_path, package)


def test_a_damaged_cache_is_not_mended_from_bytes_that_nobody_hashed(tmp_path: Path) -> None:
    package = lock(good(), tmp_path / "channel")
    shutil.rmtree(run(tmp_path, package))
    path = tmp_path / "channel" / "linux-64" / package.file
    kept = path.read_bytes()
    path.unlink()
    pack(Pkg("good", files={"share/good.txt": "evil\n"}), tmp_path / "channel")
    (tmp_path / "pkgs" / package.stem / "share/good.txt").write_text("damaged\n")
    with pytest.raises(SourceError, match="was damaged and has been removed: run the same command"):
        run(tmp_path, package)
    with pytest.raises(SourceError, match="its sha256 is not the locked"):
        run(tmp_path, package)
    path.write_bytes(kept)
    shutil.rmtree(tmp_path / "env", ignore_errors=True)
    assert (run(tmp_path, package) / "share/good.txt").read_text() == "good\n"


HOSTILE = {
    "upwards": [Pkg("evil", files={"share/x": "x"}, paths=("share/x", "../evil"))],
    "absolute": [Pkg("evil", files={"share/x": "x"}, paths=("share/x", "/tmp/evil"))],
    "in the middle": [Pkg("evil", files={"share/x": "x"}, paths=("share/x", "share/../../evil"))],
    "not a name": [Pkg("evil", files={"share/x": "x"}, paths=("share/x", ""))],
    "through a link": [
        Pkg("way", files={"way": "-> ../outside"}),
        Pkg("evil", files={"way/evil": "x"}),
    ],
    "through a link of its own": [
        Pkg("evil", files={"way": "-> ../outside", "share/x": "x"}, paths=("share/x", "way/evil"))
    ],
    "a script": [
        Pkg(
            "evil",
            files={"site-packages/x.py": "x"},
            noarch="python",
            entry_points=["../../../evil = x:y"],
        )
    ],
    "a module through a link": [
        Pkg("python", "3.11.7", files={"lib/python3.11/site-packages": "-> ../../../outside"}),
        Pkg("evil", files={"site-packages/evil": "x"}, noarch="python"),
    ],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_package_writes_nothing_outside_the_prefix(tmp_path: Path, kind: str) -> None:
    (tmp_path / "env" / "outside").mkdir(parents=True)
    packages = [lock(pkg, tmp_path / "channel") for pkg in HOSTILE[kind]]
    with pytest.raises(SourceError, match=r"evil-1.0-h0_0: .* outside the env") as caught:
        run(tmp_path, *packages)
    assert "do not use" in str(caught.value.hint)
    assert not [p for p in tmp_path.rglob("evil") if "pkgs" not in p.parts]
