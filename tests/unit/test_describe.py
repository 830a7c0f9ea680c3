"""The files of a channel beside its index, as CEP 12, CEP 36 and conda-index describe them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from rattler import Gateway, MatchSpec, RunExportsJson
from rattler import solve as rattler_solve

from ddlce.engine.index import index_is_current, publish_index
from ddlce.errors import WorkError
from support.minichannel import PLACEHOLDER, Pkg, compiled, pack

KINDS = {"noarch", "strong", "strong_constrains", "weak", "weak_constrains"}


def packages() -> list[Pkg]:
    home = {"home": "https://one.example/", "summary": "One", "doc_url": "https://doc.example/"}
    old = {"home": "https://old.example/", "summary": "Old", "description": "Long ago."}
    return [
        Pkg(
            "libone",
            "1.9",
            files={"etc/one.conf": f"prefix={PLACEHOLDER}\n"},
            about=old,
            run_exports={"weak": ["libone >=1.9,<2.0a0"]},
        ),
        Pkg(
            "libone",
            "1.10",
            files={"bin/one": compiled("one"), "etc/conda/activate.d/one.sh": "true\n"},
            about=home,
            run_exports={"weak": ["libone >=1.10,<2.0a0"]},
        ),
        Pkg("gcc_linux-64", "12", run_exports={"strong": ["libgcc >=12"]}, noarch="generic"),
        Pkg("plain", files={"bin/.plain-post-link.sh": "true\n"}),
        Pkg("plain", files={"share/plain": ""}, noarch="generic"),
    ]


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("channel")
    made = [pack(pkg, top / "built") for pkg in packages()]
    publish_index(top / "channel", [(path.parent.name, path) for path in made])
    return top / "channel"


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def test_run_exports_json_has_every_package_of_the_index(channel: Path) -> None:
    for subdir in ("linux-64", "noarch"):
        data = read(channel / subdir / "run_exports.json")
        assert set(data) == {"info", "packages", "packages.conda"}
        assert data["info"] == {"subdir": subdir, "version": 1}
        index = read(channel / subdir / "repodata.json")
        for key in ("packages", "packages.conda"):
            assert data[key].keys() == index[key].keys()
            for entry in data[key].values():
                assert set(entry) == {"run_exports"}
                assert set(entry["run_exports"]) <= KINDS
                specs = [spec for kind in entry["run_exports"].values() for spec in kind]
                assert all(MatchSpec(spec) for spec in specs)
    exports = read(channel / "linux-64/run_exports.json")["packages.conda"]
    assert exports["libone-1.10-h0_0.conda"] == {"run_exports": {"weak": ["libone >=1.10,<2.0a0"]}}
    assert exports["plain-1.0-h0_0.conda"] == {"run_exports": {}}  # a MUST of CEP 12


def test_it_says_what_the_packages_say(channel: Path, tmp_path: Path) -> None:
    """CEP 12: the same as in the archives, read here by rattler."""
    for subdir in ("linux-64", "noarch"):
        data = read(channel / subdir / "run_exports.json")["packages.conda"]
        for file, entry in data.items():
            try:
                own = RunExportsJson.from_package_archive(channel / subdir / file)
            except Exception:
                assert entry["run_exports"] == {}
                continue
            assert {k: v for k in KINDS if (v := getattr(own, k))} == entry["run_exports"]


def test_each_file_has_its_compressed_form(channel: Path) -> None:
    for subdir in ("linux-64", "noarch"):
        for name in ("repodata.json", "current_repodata.json", "run_exports.json"):
            packed = (channel / subdir / f"{name}.zst").read_bytes()
            with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
                assert json.loads(stream.read()) == read(channel / subdir / name)


def test_current_repodata_is_an_index_that_a_client_solves_with(
    channel: Path, tmp_path: Path
) -> None:
    """A channel that has nothing else, as conda sees it with --repodata-fn."""
    for subdir in ("linux-64", "noarch"):
        (tmp_path / subdir).mkdir()
        text = (channel / subdir / "current_repodata.json").read_bytes()
        (tmp_path / subdir / "repodata.json").write_bytes(text)
    found = rattler_solve(
        [tmp_path.as_uri()], ["libone"], gateway=Gateway(), platforms=["linux-64", "noarch"]
    )
    assert [str(record.version) for record in asyncio.run(found)] == ["1.10"]


def test_channeldata_describes_each_package_by_its_newest_build(channel: Path) -> None:
    data = read(channel / "channeldata.json")
    assert (data["channeldata_version"], data["subdirs"]) == (1, ["linux-64", "noarch"])
    assert set(data["packages"]) == {"libone", "gcc_linux-64", "plain"}
    assert data["packages"]["libone"] == {
        "activate.d": True,
        "binary_prefix": True,
        "deactivate.d": False,
        "doc_url": "https://doc.example/",
        "home": "https://one.example/",
        "license": "MIT",
        "post_link": False,
        "pre_link": False,
        "pre_unlink": False,
        "reference_package": "linux-64/libone-1.10-h0_0.conda",
        "run_exports": {
            "1.9": {"weak": ["libone >=1.9,<2.0a0"]},
            "1.10": {"weak": ["libone >=1.10,<2.0a0"]},
        },
        "subdirs": ["linux-64"],
        "summary": "One",
        "text_prefix": True,
        "timestamp": 1_767_225_600,
        "version": "1.10",
    }
    plain = data["packages"]["plain"]
    assert (plain["subdirs"], plain["post_link"]) == (["linux-64", "noarch"], True)
    assert plain["run_exports"] == {}


def test_a_channel_without_one_of_them_is_made_anew(channel: Path, tmp_path: Path) -> None:
    built = sorted(channel.glob("*/*.conda"))
    top = tmp_path / "channel"
    wanted = [(path.parent.name, path) for path in built]
    publish_index(top, wanted)
    assert index_is_current(top, wanted)
    assert {p.stat().st_mode & 0o777 for p in top.rglob("*.json*")} == {0o644}
    for name in ("channeldata.json", "linux-64/run_exports.json.zst", "noarch/run_exports.json"):
        before = (top / name).read_bytes()
        (top / name).unlink()
        assert not index_is_current(top, wanted)
        publish_index(top, wanted)
        assert (top / name).read_bytes() == before


def test_a_broken_package_changes_nothing(channel: Path, tmp_path: Path) -> None:
    top = tmp_path / "channel"
    wanted = [(path.parent.name, path) for path in sorted(channel.glob("*/*.conda"))]
    publish_index(top, wanted)
    files = {p: p.read_bytes() for p in top.rglob("*") if p.is_file()}
    broken = tmp_path / "linux-64" / "broken-1.0-h0_0.conda"
    broken.parent.mkdir()
    broken.write_bytes(b"PK no package")
    with pytest.raises(WorkError, match=f"{broken}: cannot be read"):
        publish_index(top, [*wanted, ("linux-64", broken)])
    assert {p: p.read_bytes() for p in top.rglob("*") if p.is_file()} == files
