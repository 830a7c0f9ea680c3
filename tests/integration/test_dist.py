"""`ddlce` handed over alone, and `make dist`: what they are, and that they are the same twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ddlce.files import sha256_file
from ddlce.trees import remove_tree
from support.bundles import run_bundle, toys
from support.minichannel import Pkg
from support.minienv import Site, as_served, served, toy_site
from support.run import ok, run

TREE = Path(__file__).parents[2]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def dist(folder: Path, umask: int = 0o022) -> list[Path]:
    done = run(
        [sys.executable, "-I", "-m", "ddlce.dist", folder],
        env={**os.environ, "DDLCE_REPO": str(TREE)},
        umask=umask,
    )
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    dist(folder)
    return folder


@pytest.fixture
def site_url(tmp_path: Path) -> Iterator[str]:
    maker, www = toy_site(tmp_path / "maker"), tmp_path / "www"
    maker.ok("publish", www, "mini", "--channel", maker.channel, "--no-bundle", "--no-sbom")
    with served(www) as url:
        yield url


def test_the_same_tree_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    again = dist(tmp_path / "again", umask=0o077)
    assert [path.name for path in again] == ["ddlce-0.1.0-py3-none-any.whl", "ddlce.pyz"]
    assert [path.read_bytes() for path in again] == [
        path.read_bytes() for path in sorted(made.iterdir())
    ]
    assert {oct(path.stat().st_mode & 0o777) for path in again} == {"0o644", "0o755"}


def machine(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a machine that has a Python and nothing of ours."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "DDLCE_CACHE": str(folder / "cache"),
        "DDLCE_ROOT": str(folder / "root"),
        **more,
    }


def test_the_zipapp_installs_a_release(made: Path, tmp_path: Path, site_url: str) -> None:
    base = getattr(sys, "_base_executable", sys.executable)
    command = [base, "-S", str(made / "ddlce.pyz")]
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "pydantic.py").write_text("raise SystemExit('code of this folder')\n")
    for _ in range(2):
        done = run(
            [*command, "env", "create", "mini", "--from", site_url],
            env=machine(tmp_path),
            cwd=tmp_path / "evil",
        )
        assert done.returncode == 0, done
    assert "is there already" in done.stdout
    done = run([*command, "module", "mini"], env=machine(tmp_path), cwd=tmp_path / "evil")
    assert f"module use {tmp_path}/root/modulefiles/" in done.stdout, done
    folders = [path.name for path in (tmp_path / "cache" / "app").iterdir()]
    assert len([name for name in folders if name[0] != "."]) == 1
    assert not [name for name in folders if name.endswith(".new")]
    assert run([*command, "--version"], env=machine(tmp_path)).stdout.startswith("ddlce ")


def test_a_zipapp_that_was_killed_while_it_unpacked(made: Path, tmp_path: Path) -> None:
    base = getattr(sys, "_base_executable", sys.executable)
    command = [base, str(made / "ddlce.pyz"), "--version"]
    process = subprocess.Popen(command, env=machine(tmp_path), stdout=subprocess.DEVNULL)
    while process.poll() is None and not list((tmp_path / "cache").glob("app/.*.new")):
        pass
    process.kill()
    process.wait()
    assert run(command, env=machine(tmp_path)).stdout.startswith("ddlce ")
    assert not list((tmp_path / "cache").glob("app/.*.new"))


def test_a_zipapp_of_another_python_or_in_an_unsafe_cache(made: Path, tmp_path: Path) -> None:
    base = getattr(sys, "_base_executable", sys.executable)
    other = tmp_path / "other.pyz"
    with zipfile.ZipFile(made / "ddlce.pyz") as packed, zipfile.ZipFile(other, "w") as written:
        for name in packed.namelist():
            if "/ddlce/" in name or "/" not in name:
                data = packed.read(name).replace(f'"{VERSION}"'.encode(), b'"3.1"')
                written.writestr(name, data)
    done = run([base, other, "--version"], env=machine(tmp_path))
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"error: {other} is for Python 3.1, and this is {VERSION}"
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    done = run([base, made / "ddlce.pyz", "--version"], env=machine(tmp_path))
    assert done.returncode == 3
    assert f"{cache} may be changed by everybody" in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert not list(cache.iterdir())


def test_the_wheel_is_whole(made: Path, tmp_path: Path) -> None:
    """It has every file that the package has in the tree, and pip makes its program."""
    (wheel,) = made.glob("*.whl")
    venv.create(tmp_path / "venv", system_site_packages=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = ["-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel]
    ok(run([sys.executable, *install]))
    assert (tmp_path / "venv" / "bin" / "ddlce").is_file()
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("ddlce/")}
    listed = run(["git", "-c", "safe.directory=*", "-C", TREE, "ls-files", "scripts/ddlce"])
    tracked = {line.removeprefix("scripts/") for line in listed.stdout.splitlines()}
    assert tracked - names == set()


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_make_dist_twice(tmp_path: Path) -> None:
    """The whole of a small release, whose bundle then installs by the site's files alone."""
    maker = toy_site(tmp_path / "maker", *toys_of_a_bundle())
    for name in ("pyproject.toml", "LICENSE", "scripts"):
        (maker.repo / name).symlink_to(TREE / name)
    shutil.copyfile(TREE / "Makefile", maker.repo / "Makefile")
    (maker.repo / ".venv").symlink_to(TREE / ".venv")
    (maker.repo / "sources.lock").write_text("sources: []\n")
    found = []
    for _ in range(2):
        shutil.rmtree(maker.repo / "dist", ignore_errors=True)
        ok(make_dist(maker))
        found.append(as_served(maker.repo / "dist"))
    assert found[0] == found[1]

    name, top = "mini-2026.11-linux-64", maker.repo / "dist/site"
    metadata = top / "channel" / "metadata"
    signed = json.loads((metadata / "1.targets.json").read_text())["signed"]["targets"]
    (bundle,) = top.rglob(f"{name}.run")
    sboms = [bundle.with_name(f"{name}.{kind}.json") for kind in ("cdx", "spdx")]
    for path in (bundle, *sboms, top / "ddlce.pyz", top / "releases.json"):
        assert signed[path.name]["hashes"]["sha256"] == sha256_file(path)
    assert "toy" in {part["name"] for part in json.loads(sboms[0].read_text())["components"]}
    locks = [lock for lock in signed if lock.endswith(".lock")]
    assert len(locks) == 2, "sources.lock, and the release's"

    trusted = tmp_path / "settings.yaml"
    root, rules = metadata / "1.root.json", {"metadata": str(metadata)}
    trusted.write_text(json.dumps({"signatures": {"root": str(root), **rules}}))
    checking = {**maker.env(), "DDLCE_SETTINGS": str(trusted)}
    ok(run([sys.executable, "-m", "ddlce", "keys", "check", bundle], env=checking))
    ok(run_bundle(bundle, "--root", tmp_path / "root", "--no-smoke", folder=tmp_path))
    assert {path.name for path in (tmp_path / "root/channel/sbom").iterdir()} == {
        path.name for path in sboms
    }
    remove_tree(tmp_path / "root")
    remove_tree(maker.root)


def toys_of_a_bundle() -> list[Pkg]:
    """Packages that install themselves; each says that it was made from nothing."""
    made_from = {"info/ddl-ce.json": '{"inputs": {}}'}
    packages = toys("linux-64", working=True)
    for package in packages:
        package.files |= made_from
    return [replace(p, depends=["ddlce"]) if p.name == "toy" else p for p in packages]


def make_dist(maker: Site) -> subprocess.CompletedProcess[str]:
    return run(
        ["make", "-o", "bootstrap", "dist"],
        env={
            **maker.env(),
            "ENVS": "mini",
            "OPTIONS": f"--channel {maker.channel}",
            "SOURCE_DATE_EPOCH": "1790000000",
        },
        cwd=maker.repo,
    )
