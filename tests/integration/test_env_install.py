"""`ddlce env install`: two at once, and beside what conda and others have put into a clone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddlce.engine.install import CacheLayer, InstallRequest, install
from ddlce.env.clone import locked_package
from ddlce.env.install import specs_of_others
from ddlce.env.layout import ORIGIN
from ddlce.env.records import read_records
from ddlce.files import sha256_file
from ddlce.model.envlock import LockedPackage
from ddlce.trees import remove_tree
from support.minichannel import Pkg, pack
from support.minienv import Site, toy_site


def numbered(name: str, *depends: str, version: str = "1.0") -> Pkg:
    return Pkg(name, version, list(depends), {f"share/{name}": version})


PACKAGES = (
    *(numbered(f"p{number}") for number in range(3)),
    numbered("dep"),
    numbered("top", "dep"),
    numbered("top", version="2.0"),
    numbered("enemy", "top >=2"),
    Pkg("linked", files={"share/linked": "x", "share/other": "y", "share/link": "-> linked"}),
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = toy_site(tmp_path, *PACKAGES)
    made.ok("env", "clone", "one")
    yield made
    remove_tree(made.root)


def names(prefix: Path) -> set[str]:
    """The packages of an environment, each of which has its file."""
    found = {str(record.data["name"]) for record in read_records(prefix)}
    for name in found - {"toy"}:
        assert (prefix / "share" / name).is_file()
    return found


def specs(prefix: Path) -> list[str]:
    said: list[str] = json.loads((prefix / ORIGIN).read_text())["specs"]
    return said


def by_others(site: Site, *wanted: str, channel: Path | None = None, without: str = "") -> None:
    """Do to the clone what conda does: records and files, and no word in our own file."""
    prefix, folder = site.clones / "one", channel or Path(site.channel)
    before = [locked_package(record) for record in read_records(prefix)]
    added = []
    for stem in wanted:
        name, version, build = stem.rsplit("-", 2)
        file = folder / "linux-64" / f"{stem}.conda"
        depends = ["dep"] if stem.startswith("top-1") else []
        known: dict[str, object] = {"name": name, "version": version, "build": build}
        known |= {"depends": depends}
        known |= {"subdir": "linux-64", "file": file.name, "size": file.stat().st_size}
        known |= {"channel": folder.as_uri(), "sha256": sha256_file(file)}
        added.append(LockedPackage.model_validate(known))
    channels = {"ddl-ce": Path(site.channel).as_uri(), folder.as_uri(): folder.as_uri()}
    request = InstallRequest(
        [p for p in [*before, *added] if p.name != without],
        channels,
        prefix,
        [CacheLayer(site.folder / "conda-pkgs")],
        specs=[package.name for package in added if package.name != "dep"],
        installed=before,
    )
    install(request)


def test_two_at_once_both_count(site: Site) -> None:
    first = site.start("env", "install", "one", "p0")
    second = site.start("env", "install", "one", "p1")
    for process in (first, second):
        assert "error" not in process.communicate(timeout=100)[1]
        assert process.returncode == 0
    prefix = site.clones / "one"
    assert names(prefix) == {"toy", "p0", "p1"}
    assert sorted(specs(prefix)) == ["p0", "p1", "toy"]


def test_two_clones_at_once_share_the_users_cache(site: Site) -> None:
    site.ok("env", "clone", "two")
    processes = [site.start("env", "install", name, "p0", "p1", "p2") for name in ("one", "two")]
    for process in processes:
        assert "error" not in process.communicate(timeout=100)[1]
        assert process.returncode == 0
    for name in ("one", "two"):
        assert names(site.clones / name) == {"toy", "p0", "p1", "p2"}


def test_what_others_put_there_stays(site: Site, tmp_path: Path) -> None:
    foreign = pack(numbered("foreign"), tmp_path / "elsewhere")
    by_others(site, "dep-1.0-h0_0", "top-1.0-h0_0")
    by_others(site, foreign.name.removesuffix(".conda"), channel=tmp_path / "elsewhere")
    said = site.ok("env", "install", "one", "p1")
    assert said == "+ p1 1.0 h0_0\n"
    prefix = site.clones / "one"
    assert names(prefix) == {"toy", "dep", "top", "foreign", "p1"}
    # They are not ours to ask for: whoever put them there can take them away.
    assert specs(prefix) == ["toy", "p1"]
    by_others(site, without="top")
    assert site.ok("env", "install", "one", "p2") == "+ p2 1.0 h0_0\n"
    assert names(prefix) == {"toy", "dep", "foreign", "p1", "p2"}


def test_what_others_removed_does_not_come_back(site: Site) -> None:
    site.ok("env", "install", "one", "p0")
    by_others(site, without="p0")
    assert site.ok("env", "install", "one", "p1") == "+ p1 1.0 h0_0\n"
    assert names(site.clones / "one") == {"toy", "p1"}
    assert specs(site.clones / "one") == ["toy", "p1"]


def test_what_the_user_did_to_files_of_others_is_no_obstacle(site: Site) -> None:
    by_others(site, "linked-1.0-h0_0")
    share = site.clones / "one" / "share"
    (share / "other").unlink()
    (share / "link").unlink()
    (share / "link").write_text("mine")
    assert site.ok("env", "install", "one", "p1") == "+ p1 1.0 h0_0\n"
    assert (share / "link").read_text() == "mine"
    assert not (share / "other").exists()


def test_a_link_that_the_disk_did_not_make_is_made_by_the_next_run(site: Site) -> None:
    site.ok("env", "install", "one", "linked")
    link = site.clones / "one" / "share" / "link"
    record = next((site.clones / "one" / "conda-meta").glob("linked-*.json"))
    data = json.loads(record.read_text())
    for entry in data["paths_data"]["paths"]:  # as the installer has left it
        entry.setdefault("sha256_in_prefix", "0" * 64)
    record.write_text(json.dumps(data))
    link.unlink()
    link.write_text("x")
    site.ok("env", "install", "one", "p1")
    assert link.is_symlink()
    assert "sha256_in_prefix" not in json.loads(record.read_text())["paths_data"]["paths"][0]


def test_a_dependency_that_nothing_needs_any_more_goes(site: Site) -> None:
    site.ok("env", "install", "one", "top <2")
    assert names(site.clones / "one") == {"toy", "dep", "top"}
    # As a clone from before: nobody asks for this package but its own spec.
    origin = site.clones / "one" / ORIGIN
    origin.write_text(origin.read_text().replace("top <2", "top"))
    said = site.ok("env", "install", "one", "top >=2")
    assert said == "- dep 1.0 h0_0\n- top 1.0 h0_0\n+ top 2.0 h0_0\n"


def test_what_is_in_the_way_is_named(site: Site) -> None:
    by_others(site, "dep-1.0-h0_0", "top-1.0-h0_0")
    record = next((site.clones / "one" / "conda-meta").glob("top-*.json"))
    data = json.loads(record.read_text())
    record.write_text(json.dumps(data | {"requested_spec": "ddl-ce/linux-64::top==1.0=h0_0"}))
    assert "top==1.0=h0_0" in specs_of_others(read_records(site.clones / "one"), ["toy"])
    before = names(site.clones / "one")
    said = site.fails(2, "env", "install", "one", "enemy")
    assert "no set of packages satisfies the specs" in said
    assert "also has" in said
    assert "top==1.0=h0_0" in said
    assert "conda remove" in said
    assert names(site.clones / "one") == before
