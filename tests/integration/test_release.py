"""`ddlce release`: what a release must have, in a real git checkout with a real lock."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ddlce.env.layout import Layout
from ddlce.model.envlock import EnvLock
from support.minienv import Site

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
    ran = ready.ddlce("release", "--channel", ready.channel, "--again", again, "--tag")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines() == [
        "ok       clean tree",
        "ok       new version",
        "ok       changelog",
        "ok       lock of mini",
        "ok       smoke of mini on linux-64",
        "ok       bytes repeated",
        "tagged 2026.11; next: ddlce bundle mini",
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
    assert missing["changelog"] == "CHANGELOG.md has no part `## 2026.11, not released yet`"
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
