"""The channel in a bundle, and the one that it leaves under the root."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ddlce.bundle.install import Installed, Stage, copy_sboms, fill_channel, index_again
from ddlce.bundle.write import write_bundle
from ddlce.cli.unbundle import say
from ddlce.env.create import Created
from ddlce.env.layout import LOCK_COPY, ORIGIN, Layout, Origin
from ddlce.files import sha256_file
from ddlce.model.envlock import EnvLock, LockedPackage
from ddlce.modulefile.install import Written
from support.bundles import channel_at, run_bundle, toy_lock, toy_settings
from support.minichannel import Pkg, pack
from support.run import ok, run


def test_the_sboms_come_with_it(tmp_path: Path) -> None:
    channel, lock = tmp_path / "channel", toy_lock(tmp_path / "channel")
    sboms = {"mini.cdx.json": "{}\n", "mini.spdx.json": "[]\n"}
    made = write_bundle(toy_settings(tmp_path), lock, channel, tmp_path / "out", sboms)
    ok(run_bundle(made.path, "--extract", "channel", tmp_path / "got", folder=tmp_path))
    found = {path.name: path.read_text() for path in (tmp_path / "got" / "sbom").iterdir()}
    assert found == sboms
    stage = Stage(Path(made.path), channel_at(Path(made.path)), tmp_path / "stage")
    copy_sboms(stage, tmp_path / "there")
    found = {path.name: path.read_text() for path in (tmp_path / "there" / "sbom").iterdir()}
    assert found == sboms


def standing(layout: Layout, lock: EnvLock) -> None:
    """Make it look as if the lock's release stood there."""
    prefix = layout.prefix(lock.env, lock.release, lock.digest)
    origin = Origin(
        kind="release",
        env=lock.env,
        release=lock.release,
        digest=lock.digest,
        platform=lock.platform,
        manifest=lock.manifest,
        channels={},
        specs=[],
        pkgs=str(layout.root / "pkgs"),
    )
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / ORIGIN).write_text(origin.model_dump_json())
    (prefix / LOCK_COPY).write_text(lock.to_yaml())


def test_the_roots_index_names_the_packages_of_all_its_releases(tmp_path: Path) -> None:
    """One build of each version: the newest release's."""
    channel, layout = tmp_path / "channel", Layout(tmp_path / "root")
    first = toy_lock(channel)
    toy = pack(Pkg("toy", build="h0123456789_0", files={"etc/toy": "new\n"}), channel)
    extra = pack(Pkg("extra", files={"etc/extra": "extra\n"}), channel)
    newer = with_package(first, toy, "toy", "h0123456789_0", release="2026.12")
    old_toy = pack(Pkg("toy", build="h9876543210_0", files={"etc/toy": "old\n"}), channel)
    old = with_package(first, old_toy, "toy", "h9876543210_0", release="2026.10")
    other = with_package(first, extra, "extra", "h0_0", env="other")

    def fill(lock: EnvLock, candidate: bool = False) -> tuple[set[str], set[str]]:
        """Install the channel of a lock's bundle; what its index names, and its files."""
        folder = tmp_path / lock.env / lock.release
        made = Path(write_bundle(toy_settings(folder), lock, channel, folder / "out").path)
        stage = Stage(made, channel_at(made), folder / "stage")
        fill_channel(stage, layout, layout.root / "channel", lock, candidate, None)
        standing(layout, lock)
        return names()

    def names() -> tuple[set[str], set[str]]:
        there = layout.root / "channel" / "linux-64"
        index = json.loads((there / "repodata.json").read_bytes())["packages.conda"]
        return set(index), {path.name for path in there.glob("*.conda")}

    fill(old)
    index, files = fill(newer)
    assert {toy.name, old_toy.name} & index == {toy.name}
    assert {toy.name, old_toy.name} <= files
    index, files = fill(other)
    assert {toy.name, extra.name} <= index
    assert old_toy.name in files - index
    # Of a candidate, the index names nothing until it is offered.
    try_toy = pack(Pkg("toy", build="h5555555555_0", files={"etc/toy": "try\n"}), channel)
    tried = with_package(first, try_toy, "toy", "h5555555555_0", release="2027.01")
    index, files = fill(tried, candidate=True)
    assert toy.name in index
    assert try_toy.name in files - index
    mark = layout.candidate_mark(layout.prefix(tried.env, tried.release, tried.digest))
    mark.touch()
    index_again(layout)
    assert try_toy.name not in names()[0]
    mark.unlink()
    index_again(layout)
    assert {toy.name, try_toy.name} & names()[0] == {try_toy.name}


def with_package(lock: EnvLock, path: Path, name: str, build: str, **changes: str) -> EnvLock:
    """The lock with another package, or another build of one."""
    record: dict[str, Any] = {"name": name, "version": "1.0", "build": build, "subdir": "linux-64"}
    record |= {"file": path.name, "sha256": sha256_file(path), "size": path.stat().st_size}
    package = LockedPackage.of(record, path.name)
    packages = [one for one in lock.packages if one.name != name]
    packages = sorted([*packages, package], key=lambda one: one.name)
    return lock.model_copy(update={"packages": packages, **changes})


@pytest.mark.parametrize("verb", ["bundle", "sbom"])
def test_a_channel_that_others_may_change_is_not_read(tmp_path: Path, verb: str) -> None:
    """They could change a file after it was hashed."""
    channel = tmp_path / "channel"
    (tmp_path / "lock").write_text(toy_lock(channel).to_yaml())
    channel.chmod(0o777)
    words = [verb, "--lock", str(tmp_path / "lock"), "--channel", str(channel)]
    done = run(
        [sys.executable, "-m", "ddlce", *words, "--out", str(tmp_path / "out")], cwd=tmp_path
    )
    assert done.returncode == 3
    assert f"the channel {channel} may be changed by everybody" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_printed_command_is_one_for_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a root"
    written = Written("mini", "1", "1", folder, {}, {"Lmod": folder / "lua"}, [])
    created = Created(folder, True, 1, 0, {})
    say(Installed(created, written, folder / "channel"))
    said = capsys.readouterr().out
    assert f"module use '{folder}/lua' && module load mini" in said
