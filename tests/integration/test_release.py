"""`ddlce release`: what a release must have, in a real git checkout with a real lock."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ddlce.engine.index import index_channel
from ddlce.env.layout import Layout
from ddlce.model.envlock import EnvLock
from support.bundles import run_bundle, toys
from support.minichannel import pack
from support.minienv import Site
from support.run import ok

CHANGES = "# Changelog\n\n## 2026.11, not released yet\n\n- Toys.\n\n## 2026.10, 2026-10-01\n"


def git(site: Site, *words: str) -> str:
    command = ["git", "-C", str(site.repo), "-c", "user.name=A", "-c", "user.email=a@b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def release(site: Site, *words: str) -> tuple[int, dict[str, str]]:
    """The exit status, and what is missing of each check."""
    ran = site.ddlce("release", "--channel", site.channel, "--json", *words)
    return ran.returncode, {check["name"]: check["problem"] for check in json.loads(ran.stdout)}


@pytest.fixture
def ready(site: Site) -> Site:
    """A tree whose release can be made, but for the second build."""
    return make_ready(site)


def make_ready(site: Site) -> Site:
    site.extra |= {
        f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    site.ok("lock", "mini")
    (site.repo / "CHANGELOG.md").write_text(CHANGES)
    git(site, "init", "--quiet")
    git(site, "add", "--all")
    git(site, "commit", "--quiet", "-m", "all")
    lock = EnvLock.load(site.lock)
    layout = Layout(site.root)
    reports = layout.reports(layout.prefix(lock.env, lock.release, lock.digest))
    reports.mkdir(parents=True)
    report = {"passed": True, "parts": [{"cases": [1]}], "machine": {"cpu": "x"}}
    (reports / "report.json").write_text(json.dumps(report))
    return site


def second_build(site: Site, tmp_path: Path) -> Path:
    folder = tmp_path / "again"
    source = Path(site.channel.removeprefix("file://"))
    for package in EnvLock.load(site.lock).packages:
        (folder / package.subdir).mkdir(parents=True, exist_ok=True)
        name = Path(package.subdir, package.file)
        shutil.copyfile(source / name, folder / name)
    return folder


def test_a_release_is_checked_then_tagged(ready: Site, tmp_path: Path) -> None:
    again = second_build(ready, tmp_path)
    ran = ok(ready.ddlce("release", "--channel", ready.channel, "--again", again, "--tag"))
    assert ran.stdout.splitlines() == [
        "ok       clean tree",
        "ok       new version",
        "ok       changelog",
        "ok       lock of mini",
        "ok       smoke of mini on linux-64",
        "ok       bytes repeated",
        "tagged 2026.11",
    ]
    assert git(ready, "status", "--porcelain") == ""
    assert git(ready, "describe") == "2026.11\n"
    heading = (ready.repo / "CHANGELOG.md").read_text().splitlines()[2]
    assert heading.startswith("## 2026.11, 20")
    code, missing = release(ready, "--again", str(again))
    assert code == 1
    assert "2026.11 has a tag: raise ddl_ce_release" in missing["new version"]


def test_all_that_is_missing_is_named_and_nothing_is_tagged(ready: Site, tmp_path: Path) -> None:
    again = second_build(ready, tmp_path)
    (changed, lacking, *_) = sorted(again.rglob("*.conda"))
    changed.write_bytes(changed.read_bytes() + b"x")
    lacking.unlink()
    ready.manifest.write_text(ready.manifest.read_text().replace("- mini-all", "- miniarch 0.3"))
    (ready.repo / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 2026.11, not released yet\n\n## 1\n"
    )
    (report,) = ready.root.rglob("report.json")
    report.write_text(report.read_text().replace("true", "false"))
    code, missing = release(ready, "--again", str(again), "--tag")
    assert code == 1
    assert missing["clean tree"] == "not committed: CHANGELOG.md, envs/mini.yaml"
    assert missing["new version"] == ""
    assert missing["changelog"].startswith("the part of 2026.11 in CHANGELOG.md is empty")
    assert missing["lock of mini"] == "linux-64 is stale: ddlce lock mini"
    assert "did not pass: ddlce smoke mini/2026.11-" in missing["smoke of mini on linux-64"]
    assert "1 not built again, as " in missing["bytes repeated"]
    assert "1 with other bytes, as " in missing["bytes repeated"]
    assert git(ready, "tag") == ""

    report.unlink()
    (ready.repo / "CHANGELOG.md").unlink()
    _, missing = release(ready)
    assert "has no report: ddlce smoke mini/" in missing["smoke of mini on linux-64"]
    assert missing["changelog"] == (
        "CHANGELOG.md has no part `## 2026.11, not released yet`: ddlce release --changelog"
    )
    assert missing["bytes repeated"].startswith("not shown: ")


def test_a_tree_without_git(site: Site) -> None:
    site.ok("lock", "mini")
    site.extra |= {"GIT_CEILING_DIRECTORIES": str(site.folder)}
    ran = site.ddlce("release", "--channel", site.channel)
    assert ran.returncode == 1
    assert "a release is made in a git checkout" in ran.stderr


def test_a_tree_without_locks(site: Site) -> None:
    ran = site.ddlce("release")
    assert ran.returncode == 2
    assert "has no locks" in ran.stderr


def installable(folder: Path) -> Site:
    """A site whose release has all that a bundle needs."""
    for package in toys("linux-64"):
        pack(package, folder / "channel")
    index_channel(folder / "channel")
    site = Site(folder, str(folder / "channel"))
    site.manifest.write_text(site.manifest.read_text().replace("- mini-all", "- ddlce\n  - toy"))
    (site.repo / "sources.lock").write_text("sources: []\n")
    return make_ready(site)


def test_the_bundles_are_written_before_the_tag(tmp_path: Path) -> None:
    site = installable(tmp_path)
    words = ("release", "--channel", site.channel, "--again", second_build(site, tmp_path), "--tag")
    ran = ok(site.ddlce(*words, "--bundle", tmp_path / "out"))
    bundle = tmp_path / "out" / "mini-2026.11-linux-64.run"
    assert ran.stdout.splitlines()[-2:] == [f"wrote {bundle}", "tagged 2026.11"]
    assert (
        "mini 2026.11 for linux-64: 4 packages"
        in run_bundle(bundle, "--list", folder=tmp_path).stdout
    )
    assert git(site, "describe") == "2026.11\n"


def test_a_release_that_cannot_be_bundled_has_no_tag(ready: Site, tmp_path: Path) -> None:
    (ready.repo / "sources.lock").write_text("sources: []\n")
    git(ready, "add", "--all")
    git(ready, "commit", "--quiet", "-m", "sources")
    words = ("release", "--channel", ready.channel, "--again", second_build(ready, tmp_path))
    said = ready.fails(2, *words, "--tag", "--bundle", tmp_path / "out")
    assert "has no backports.zstd and no ddlce" in said
    assert git(ready, "tag") == ""
    said = ready.fails(2, *words, "--bundle", tmp_path / "out")
    assert "--bundle goes with --tag" in said
    said = ready.fails(2, "release", "--channel", "http://localhost:9/x", "--tag", "--bundle", "x")
    assert "--bundle needs the folder of the channel" in said


def test_the_changelog_gets_what_changes(ready: Site) -> None:
    """Once: what is there already, perhaps edited around, is not written a second time."""
    changelog = ready.repo / "CHANGELOG.md"
    said = ready.fails(2, "release", "--changelog")
    assert "has no lock of an earlier release" in said
    lock = EnvLock.load(ready.lock)
    gone = next(p for p in lock.packages if p.name == "miniarch")
    first, *rest = (p for p in lock.packages if p.name != "miniarch")
    version = f"{first.version.partition('.')[0]}.0.0a1"
    older = first.model_copy(update={"version": version})
    for release, packages in (("2026.9", rest), ("2026.10", [older, *rest, gone])):
        folder = ready.lock.parent / release
        folder.mkdir()
        before = lock.model_copy(
            update={"release": release, "packages": sorted(packages, key=lambda p: p.name)}
        )
        (folder / ready.lock.name).write_text(before.to_yaml())
    (ready.repo / "envs" / "locks" / "2026.12").mkdir()  # of a later one: not the one before
    shutil.copyfile(ready.lock, ready.repo / "envs" / "locks" / "2026.12" / ready.lock.name)
    out = ready.ok("release", "--changelog")
    assert out == f"added 1 line to {changelog}, since 2026.10; edit them, and commit\n"
    line = f"- `mini` on linux-64: {first.name} {version} → {first.version}."
    assert f"- Toys.\n{line}\n\n## 2026.10, 2026-10-01\n" in changelog.read_text()
    text = changelog.read_text()
    assert ready.ok("release", "--changelog") == f"{changelog} has all that changes since 2026.10\n"
    assert changelog.read_text() == text
    changelog.write_text("# Changelog\n\nWords.\n\n## 2026.10, 2026-10-01\n\n- Old.\n")
    ready.ok("release", "--changelog")
    assert changelog.read_text() == (
        f"# Changelog\n\nWords.\n\n## 2026.11, not released yet\n\n{line}\n\n"
        "## 2026.10, 2026-10-01\n\n- Old.\n"
    )
    changelog.unlink()
    ready.ok("release", "--changelog")
    assert changelog.read_text() == f"# Changelog\n\n## 2026.11, not released yet\n\n{line}\n"
    said = ready.fails(2, "release", "--changelog", "--tag")
    assert "--changelog goes alone" in said
