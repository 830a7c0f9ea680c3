"""Every package of the channel that `make` built, and the channel as a whole."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ddlce.audit import (
    audit_facts,
    audit_index,
    clobbered,
    closure,
    indexed,
    read_channel,
    unknown_dependencies,
)
from ddlce.audit.facts import Info, read_facts, read_metadata
from ddlce.builder.distributions import distributions
from ddlce.engine.solve import solve
from ddlce.engine.variants import glibc_floor
from ddlce.errors import DdlceError
from ddlce.model.envlock import EnvLock
from ddlce.platforms import PLATFORMS
from ddlce.settings import load_settings
from support.packages import package_files
from support.run import run
from support.served import serving

pytestmark = pytest.mark.built

REPO = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def channel() -> Path:
    """The built channel."""
    folder = load_settings().channel
    assert (folder / "noarch/repodata.json").is_file(), "there is no channel: run `make` first"
    return folder


@pytest.fixture(scope="module")
def known(channel: Path) -> dict[str, list[Info]]:
    """Names and paths of all its packages."""
    return read_channel([channel])


@pytest.fixture(scope="module")
def packages(channel: Path) -> list[Path]:
    """The packages of its indexes; a file that only an older lock names is in none."""
    subdirs = [index.parent for index in sorted(channel.glob("*/repodata.json"))]
    return [path for subdir in subdirs for path in indexed(subdir)]


def is_for_cuda(info: Info) -> bool:
    """Whether the package is for CUDA: some gigabytes, which each build has checked."""
    return "cuda-version" in info.depends or str(info.index["build"]).startswith("cuda")


@pytest.mark.parametrize("cuda", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_package_keeps_every_rule(
    packages: list[Path], known: dict[str, list[Info]], cuda: bool
) -> None:
    chosen = {x.path for builds in known.values() for x in builds if is_for_cuda(x) == cuda}
    packages = [path for path in packages if path in chosen]
    settings = load_settings()
    # Also the folders of this machine: a package must not know where it was built.
    forbidden = [str(settings.cache), str(settings.root), str(REPO)]
    floors = {subdir: glibc_floor(REPO / "recipes", subdir) for subdir in PLATFORMS}
    # What others stand on comes first: none is read a second time for its symbols.
    size = {x.path: len(closure(x, known).packages) for builds in known.values() for x in builds}
    found = []
    for package in sorted(packages, key=size.__getitem__):
        floor = floors.get(package.parent.name, "")
        facts = replace(read_facts(package, forbidden), floor=floor)
        found += [f"{package.name}: {x}" for x in audit_facts(facts, closure(facts, known))]
    assert not found, "\n".join(found)
    assert cuda or len(packages) > 40


def test_every_dependency_is_in_the_channel(
    packages: list[Path], known: dict[str, list[Info]]
) -> None:
    """Of the indexes. Of an older lock, beside them, there may be a part: another platform's."""
    indexed_files = {*packages}
    builds = (info for builds in known.values() for info in builds)
    found = unknown_dependencies(info for info in builds if info.path in indexed_files)
    assert not found, "\n".join(map(str, found))


def test_no_two_packages_of_the_environment_share_a_file(known: dict[str, list[Info]]) -> None:
    locks = {path.name: EnvLock.load(path) for path in (REPO / "envs/locks").glob("*.lock")}
    by_file = {info.path.name: info for builds in known.values() for info in builds}
    # Environments that are built on demand, as those for GPUs, need not be of this channel.
    built = {
        name: lock
        for name, lock in locks.items()
        if all(package.file in by_file for package in lock.packages)
    }
    assert "ddl-ce.linux-64.lock" in built, "the channel is not of this lock: run `make` first"
    for lock in built.values():
        found = clobbered(by_file[package.file] for package in lock.packages)
        assert not found, "\n".join(map(str, found))


def test_each_index_names_its_packages_as_they_are(channel: Path) -> None:
    folders = [path.parent for path in channel.glob("*/repodata.json")]
    assert {"linux-64", "noarch"} <= {folder.name for folder in folders}
    found = [finding for folder in folders for finding in audit_index(folder)]
    assert not found, "\n".join(map(str, found))


def test_the_files_beside_the_index_name_every_package(channel: Path) -> None:
    described = json.loads((channel / "channeldata.json").read_text())["packages"]
    names = set()
    for index in channel.glob("*/repodata.json"):
        records = json.loads(index.read_text())["packages.conda"]
        exports = json.loads((index.parent / "run_exports.json").read_text())["packages.conda"]
        assert exports.keys() == records.keys()
        assert (index.parent / "current_repodata.json").read_bytes() == index.read_bytes()
        names |= {record["name"] for record in records.values()}
        if index.parent.name == "linux-64":
            (numpy,) = (exports[file] for file in exports if file.startswith("numpy-"))
            assert numpy == {"run_exports": {"weak": ["numpy >=1.23,<3"]}}
    assert described.keys() == names
    assert all(entry["summary"] and entry["home"] for entry in described.values())


def test_numpy_exports_what_its_headers_promise(packages: list[Path]) -> None:
    """What is compiled with them runs on that numpy and newer, unless it asks for more."""
    seen = 0
    for package in (path for path in packages if path.name.startswith("numpy-")):
        files = package_files(package)
        # Debian's has them in another folder.
        (header,) = {files[name] for name in files if name.endswith("/numpy/numpyconfig.h")}
        default = re.findall(rb"define NPY_FEATURE_VERSION NPY_(\d+)_(\d+)_API_VERSION", header)[-1]
        floor = b".".join(default).decode()
        exports = json.loads(files["info/run_exports.json"])
        assert exports == {"weak": [f"numpy >={floor},<3"]}
        seen += 1
    assert seen


#: conda name → what pip calls it, where PyPI has it.
PYPI = {"numpy": "numpy", "pytorch": "torch", "tensorflow": "tensorflow", "horovod": "horovod"}


def test_python_packages_are_known_to_pip_and_pixi(known: dict[str, list[Info]]) -> None:
    purls = {}
    for name, builds in known.items():
        for info in builds:
            purls[name] = [purl.partition("@")[0] for purl in info.index["purls"]]
            paths = {e["_path"] for e in read_metadata(info.path)["paths"]["paths"]}
            wanted = {
                f"{distribution.folder}/{file}"
                for distribution in distributions(paths)
                if distribution.folder.endswith(".dist-info")
                for file in ("INSTALLER", "RECORD")
            }
            assert wanted <= paths, f"{info.path.name}: {wanted - paths}"
    assert {name: purls[name] for name in PYPI} == {k: [f"pkg:pypi/{v}"] for k, v in PYPI.items()}
    for ours in ("ddl", "ddl-torch", "lms-torch", "ddlce", "python", "libzlib"):
        assert purls[ours] == []


QUERY = """
import asyncio, json, os, sys
from rattler import Gateway, SourceConfig

url, kind, cache, subdirs, *names = sys.argv[1:]
config = SourceConfig(
    zstd_enabled=kind == "zst", bz2_enabled=False, sharded_enabled=kind == "shards"
)
gateway = Gateway(cache_dir=cache, default_config=config)
answers = asyncio.run(gateway.query([url], subdirs.split(","), names, recursive=False))
print(json.dumps(sorted(
    [
        [r.file_name, r.name.normalized, str(r.version), str(r.build), r.build_number, r.subdir,
         r.sha256.hex(), r.md5.hex(), r.size, r.license, r.depends, r.constrains,
         r.noarch.generic, r.noarch.python, str(r.timestamp)]
        for records in answers for r in records
    ]
)))
sys.stdout.flush()
os._exit(0)  # at its end the interpreter crashes at times, in py-rattler 0.28's threads
"""


def test_a_client_reads_the_same_from_each_form_of_the_index(
    channel: Path, packages: list[Path], known: dict[str, list[Info]], tmp_path: Path
) -> None:
    """py-rattler, over HTTP: repodata.json, .zst and shards give it the same records."""
    answers = {}
    subdirs = ",".join(path.parent.name for path in channel.glob("*/repodata.json"))
    with serving(channel) as (url, asked):
        for kind in ("plain", "zst", "shards"):
            done = run(
                [sys.executable, "-c", QUERY, url, kind, str(tmp_path / kind), subdirs, *known],
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            answers[kind] = json.loads(done.stdout)
    assert any("/shards/" in path for path in asked)
    assert answers["plain"] == answers["zst"] == answers["shards"]
    assert len(answers["plain"]) == len(packages)


def test_a_machine_below_the_floor_is_refused(channel: Path, tmp_path: Path) -> None:
    """By the solver of pixi, which takes the machine's glibc for a package, as conda does."""
    where, cache = {"ddl-ce": channel.as_uri()}, tmp_path / "cache"
    found = solve(["ddl-ce"], where, "linux-64", {"__glibc": "2.28", "__unix": "0"}, cache)
    assert "pytorch" in {package.name for package in found}
    with pytest.raises(DdlceError, match="__glibc"):
        solve(["ddl-ce"], where, "linux-64", {"__glibc": "2.27", "__unix": "0"}, cache)
