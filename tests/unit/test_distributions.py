"""Python distributions in packages: what pip, importlib.metadata and pixi then know of them."""

from __future__ import annotations

import asyncio
import base64
import csv
import hashlib
import io
import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest
from rattler import Gateway, Platform

from ddlce.audit.facts import installed_path
from ddlce.builder.distributions import distributions
from ddlce.builder.repack import repack
from ddlce.engine.index import index_channel
from support.minichannel import PLACEHOLDER, SITE, Pkg, pack
from support.packages import package_files
from support.run import ok, run

INFO = f"{SITE}/toy-1.0.dist-info"


PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def metadata(name: str, version: str = "1.0") -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def toy(**more: Any) -> Pkg:
    """A package as CMake installs it: no INSTALLER, no RECORD, files outside site-packages."""
    files: dict[str, Any] = {
        f"{INFO}/METADATA": metadata("toy"),
        f"{INFO}/entry_points.txt": "[console_scripts]\ntoyrun = toy:main\n",
        f"{SITE}/toy/__init__.py": "def main(): print('toy')\n",
        f"{SITE}/toy/__pycache__/__init__.cpython-311.pyc": b"\0compiled",
        "bin/toyrun": f"#!{PLACEHOLDER}/bin/python\nimport toy\ntoy.main()\n",
        "include/toy.h": "#define TOY\n",
        "lib/libtoy.so": "-> libtoy.so.1",
        "lib/libtoy.so.1": b"\x7fELF",
    }
    return Pkg("toy", files=files | more.pop("files", {}), **more)


def repacked(pkg: Pkg, folder: Path, published: bool = False) -> dict[str, bytes]:
    """The files of a package after repacking, info/ included."""
    (folder / "raw").mkdir(parents=True)
    raw = pack(pkg, folder / "raw")
    target = folder / raw.parent.name / raw.name
    target.parent.mkdir()
    repack(raw, target, {"variant": {"python": "3.11"}}, published)
    return package_files(target)


def installed(pkg: Pkg, folder: Path) -> Path:
    """An environment of Python's own with the package's files in it; returns its folder."""
    prefix = folder / "prefix"
    venv.create(prefix, with_pip=False)
    for name, data in repacked(pkg, folder).items():
        if not name.startswith("info/"):
            path = prefix / installed_path(name, PYTHON)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return prefix


def pip(prefix: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-m", "pip", "--python", str(prefix / "bin/python"), *words]
    return run(command)


def test_every_distribution_says_who_installed_it_and_its_files(tmp_path: Path) -> None:
    pkg = toy(files={f"{INFO}/INSTALLER": "pip\n", f"{INFO}/RECORD": "old,,\n"})
    files = repacked(pkg, tmp_path)
    assert files[f"{INFO}/INSTALLER"] == b"conda\n"
    lines = list(csv.reader(io.StringIO(files[f"{INFO}/RECORD"].decode())))
    assert lines == sorted(lines)
    record = {name: (digest, size) for name, digest, size in lines}
    payload = {name for name in files if not name.startswith("info/")}
    paths = {str(Path(SITE, name).resolve()).removeprefix(f"{Path.cwd()}/") for name in record}
    assert paths == payload
    assert {name for name, (digest, _) in record.items() if not digest} == {
        "../../../bin/toyrun",  # its first line is replaced
        "../../libtoy.so",
        "toy/__pycache__/__init__.cpython-311.pyc",
        "toy-1.0.dist-info/RECORD",
    }
    data = files[f"{SITE}/toy/__init__.py"]
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    assert record["toy/__init__.py"] == (f"sha256={digest}", str(len(data)))


def test_paths_json_names_them_like_any_other_file(tmp_path: Path) -> None:
    files = repacked(toy(), tmp_path)
    entries = {e["_path"]: e for e in json.loads(files["info/paths.json"])["paths"]}
    assert list(entries) == sorted(name for name in files if not name.startswith("info/"))
    for name in ("INSTALLER", "RECORD"):
        data = files[f"{INFO}/{name}"]
        assert entries[f"{INFO}/{name}"]["sha256"] == hashlib.sha256(data).hexdigest()
        assert entries[f"{INFO}/{name}"]["size_in_bytes"] == len(data)


def test_a_noarch_package_s_scripts_are_its_too(tmp_path: Path) -> None:
    pkg = Pkg(
        "toy",
        files={
            "site-packages/toy.py": "",
            "site-packages/toy-1.0.dist-info/METADATA": metadata("toy"),
            "python-scripts/plain": "#!/bin/sh\n",
            "share/toy.txt": "",
        },
        noarch="python",
        entry_points=["toyrun = toy:main"],
    )
    record = repacked(pkg, tmp_path)["site-packages/toy-1.0.dist-info/RECORD"].decode()
    assert [line.split(",")[0] for line in record.splitlines()] == [
        "../../../bin/plain",
        "../../../bin/toyrun",
        "../../../share/toy.txt",
        "toy-1.0.dist-info/INSTALLER",
        "toy-1.0.dist-info/METADATA",
        "toy-1.0.dist-info/RECORD",
        "toy.py",
    ]


@pytest.mark.skipif(sysconfig.get_python_version() != "3.11", reason="the toy is for Python 3.11")
def test_pip_removes_all_of_it_and_nothing_else(tmp_path: Path) -> None:
    prefix = installed(toy(), tmp_path)
    shown = pip(prefix, "show", "-f", "toy").stdout
    assert "Installer: conda" in pip(prefix, "show", "-v", "toy").stdout
    assert "../../../include/toy.h" in shown
    ok(pip(prefix, "uninstall", "-y", "toy"))
    left = {str(p.relative_to(prefix)) for p in prefix.rglob("*") if "toy" in p.name}
    assert left == set()
    assert (prefix / "bin/python").exists()


@pytest.mark.skipif(sysconfig.get_python_version() != "3.11", reason="the toy is for Python 3.11")
def test_pip_leaves_alone_what_it_cannot_tell_apart(tmp_path: Path) -> None:
    other = f"{SITE}/other-2.0.dist-info"
    prefix = installed(toy(files={f"{other}/METADATA": metadata("other", "2.0")}), tmp_path)
    done = pip(prefix, "uninstall", "-y", "toy")
    assert done.returncode != 0
    assert "RECORD" in done.stderr
    assert "installed by conda" in done.stderr
    assert (prefix / SITE / "toy/__init__.py").exists()


def test_package_urls_are_those_of_what_pypi_has(tmp_path: Path) -> None:
    site, noarch = SITE, "site-packages"
    paths = [
        f"{site}/Under_Score-1.0.dist-info/METADATA",
        f"{site}/torch-2.13.0+cpu.dist-info/METADATA",
        f"{site}/toy/_vendor/inner-9.dist-info/METADATA",
        f"{site}/PyYAML-6.0.2.egg-info",
        f"{site}/deb-1.0-py3.13.egg-info/PKG-INFO",
        f"{site}/odd-1.0.dist-info/LICENSE",
        f"{noarch}/backports.zstd-1.8.0.dist-info/METADATA",
    ]
    assert [d.purl for d in distributions(paths)] == [
        "pkg:pypi/backports-zstd@1.8.0",
        "pkg:pypi/deb@1.0",
        "pkg:pypi/pyyaml@6.0.2",
        "pkg:pypi/torch@2.13.0",
        "pkg:pypi/under-score@1.0",
    ]
    index = json.loads(repacked(toy(), tmp_path / "ours")["info/index.json"])
    assert index["purls"] == []  # pixi must not take it for another's of the same name
    index = json.loads(repacked(toy(), tmp_path / "theirs", published=True)["info/index.json"])
    assert index["purls"] == ["pkg:pypi/toy@1.0"]


def test_package_urls_reach_the_index_as_clients_read_it(tmp_path: Path) -> None:
    repacked(toy(), tmp_path, published=True)
    index_channel(tmp_path)
    records = json.loads((tmp_path / "linux-64/repodata.json").read_text())["packages.conda"]
    assert records["toy-1.0-h0_0.conda"]["purls"] == ["pkg:pypi/toy@1.0"]
    query = Gateway().query([tmp_path.as_uri()], [Platform("linux-64")], ["toy"], recursive=False)
    ((record,),) = asyncio.run(query)
    assert json.loads(record.to_json())["purls"] == ["pkg:pypi/toy@1.0"]


def test_the_variant_is_the_hash_input(tmp_path: Path) -> None:
    assert json.loads(repacked(toy(), tmp_path)["info/hash_input.json"]) == {"python": "3.11"}
