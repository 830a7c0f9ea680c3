"""From one release to the next: both stay installable, and a user changes when he wants to."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlce.channel import standing_locks
from ddlce.engine.index import index_channel
from ddlce.env.verify import verify
from ddlce.files import sha256_file
from ddlce.lockdiff import compare
from ddlce.model.envlock import EnvLock
from ddlce.trust.names import lock_name, signed_files
from ddlce.upkeep.changes import to_markdown
from support.minichannel import Pkg, pack
from support.minienv import Site, toy_site


@dataclass(frozen=True)
class Seen:
    """What a user of the first release sees.

    Attributes:
        release, clone: file → sha256, or where a link leads.
        module: the text of the modulefile that he names.
        default: the release that those get who name none.
        conda: name for conda → release.
    """

    release: dict[str, str]
    clone: dict[str, str]
    module: str
    default: str
    conda: dict[str, str]


def contents(folder: Path) -> dict[str, str]:
    """Path → what it holds."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else sha256_file(path)
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def look(site: Site, release: Path) -> Seen:
    names = site.root / "conda" / "envs"
    return Seen(
        contents(release),
        contents(site.clones / "mine"),
        (site.root / "modulefiles/lua/mini/2026.11.lua").read_text(),
        (site.root / "modulefiles/lua/mini/.modulerc.lua").read_text(),
        {path.name: path.resolve().name for path in names.iterdir()},
    )


def go_on(site: Site) -> Path:
    """The tree's next release: its channel's index has the new version of a package alone."""
    channel = Path(site.channel)
    old = channel / "linux-64" / "toy-1.0-h0_0.conda"
    (site.folder / "store").mkdir()
    shutil.move(old, site.folder / "store" / old.name)
    pack(Pkg("toy", "1.1", files={"etc/toy": "newer\n"}), channel)
    for index in (*channel.rglob("repodata*"), *channel.rglob("shards")):
        shutil.rmtree(index) if index.is_dir() else index.unlink()
    index_channel(channel)
    shutil.move(site.folder / "store" / old.name, old)  # as `ddlce index` keeps it
    site.manifest.write_text(site.manifest.read_text().replace("2026.11", "2026.12"))
    site.ok("lock", "mini")
    return site.lock.parent / "2026.11" / site.lock.name


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site with a release that a user has cloned."""
    site = toy_site(tmp_path)
    site.ok("module", "mini")
    site.ok("env", "clone", "mine")
    return site


def test_the_lock_of_the_release_before_stays_in_the_tree(site: Site) -> None:
    text = site.lock.read_text()
    site.manifest.write_text(site.manifest.read_text().replace("summary: ", "summary: Small "))
    site.ok("lock", "mini")
    assert sorted(site.lock.parent.iterdir()) == [site.lock]  # the release has not ended
    site.manifest.write_text(site.manifest.read_text().replace("summary: Small ", "summary: "))
    site.ok("lock", "mini")
    site.manifest.write_text(site.manifest.read_text().replace("2026.11", "2026.12"))
    assert site.ddlce("lock", "mini", "--check").returncode == 1
    assert sorted(site.lock.parent.iterdir()) == [site.lock]
    site.manifest.write_text(site.manifest.read_text().replace("2026.12", "2026.11"))
    before = go_on(site)
    assert before.read_text() == text
    assert EnvLock.load(site.lock).release == "2026.12"
    # Its packages stay in the channel, and it stays signed.
    assert {before, site.lock} <= {*standing_locks(site.settings)}
    signed = signed_files(site.settings, Path(site.channel))
    assert signed[lock_name(EnvLock.load(before))] == before
    said = to_markdown(compare(EnvLock.load(before), EnvLock.load(site.lock)))
    assert "| package | 2026.11 | 2026.12 | MB |" in said
    assert "| toy | 1.0 | 1.1 |" in said


def test_a_user_of_the_release_before_sees_nothing_until_he_wants_it(site: Site) -> None:
    old = site.current
    seen = look(site, old)
    go_on(site)
    site.ok("env", "create", "mini", "--no-default")
    (new,) = (path for path in old.parent.glob("2026.12-*") if path.is_dir())
    site.ok("module", f"mini/{new.name}")
    assert look(site, old) == seen  # it is installed, and he has not asked for it
    assert site.current == old

    site.ok("env", "default", f"mini/{new.name}")
    assert site.current == new
    after = look(site, old)
    assert (after.release, after.clone, after.module) == (seen.release, seen.clone, seen.module)
    assert after.conda == {"mini": new.name, "mini-2026.11": old.name, "mini-2026.12": new.name}
    assert '"mini/2026.12"' in after.default
    assert verify(old).ok
    site.ok("env", "clone", "again", "--from", f"mini/{old.name}")
    assert (site.clones / "again/etc/toy").read_text() == f"{site.clones}/again\n"
    site.ok("env", "clone", "newer")
    assert (site.clones / "newer/etc/toy").read_text() == "newer\n"

    site.ok("env", "default", f"mini/{old.name}")
    back = look(site, old)
    assert site.current == old
    assert (back.default, back.conda["mini"]) == (seen.default, old.name)
    assert (back.release, back.clone, back.module) == (seen.release, seen.clone, seen.module)
    rows = json.loads(site.ok("env", "list", "--json"))
    assert {row["prefix"] for row in rows if row["default"]} == {str(old)}


def test_an_earlier_release_is_installed_from_the_tree(site: Site, tmp_path: Path) -> None:
    old = site.current
    go_on(site)
    site.root.rename(tmp_path / "other")  # another machine's
    create = ("env", "create", "mini", "--channel", site.channel, "--release")
    site.ok(*create, "2026.12")
    new = site.current
    assert new.name.startswith("2026.12-")
    site.ok(*create, "2026.11", "--no-default")
    assert (old / "etc/toy").read_text() == f"{old}\n"
    assert site.current == new
    assert verify(old).ok
    assert verify(new).ok


def test_a_release_that_the_tree_has_not(site: Site) -> None:
    said = site.fails(2, "env", "create", "mini", "--release", "2026.10")
    place = site.lock.parent / "2026.10" / site.lock.name
    assert f"there is no lock of mini 2026.10 for linux-64: no {place}" in said
    said = site.fails(2, "env", "create", "mini", "--release", "2026.11", "--lock", site.lock)
    assert "--lock does not go with --release" in said
