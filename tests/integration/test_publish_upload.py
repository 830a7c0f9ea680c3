"""A site brought to another place by a command of its own, as the client of a store of objects."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.minienv import Site, as_served, served, toy_site

#: Notes what it is given, then copies it, as clients of stores do: nothing is removed there.
CLIENT = """\
#!/bin/sh
(cd "$1" && find . -type f | sort; echo --) >> "$3"
[ ! -e "$2/full" ] || { echo "the store is full" >&2; exit 7; }
mkdir -p "$2" && cp -R "$1/." "$2"
"""


@pytest.fixture
def maker(tmp_path: Path) -> Site:
    return toy_site(tmp_path / "maker")


@pytest.fixture
def client(tmp_path: Path) -> str:
    """The command, for which a path has a space."""
    path = tmp_path / "a client"
    path.write_text(CLIENT)
    path.chmod(0o755)
    return f"'{path}' {{from}} {{to}} '{tmp_path / 'log'}'"


def words(maker: Site, tmp_path: Path) -> tuple[str | Path, ...]:
    no_extras = ("--no-bundle", "--no-sbom", "--channel", maker.channel)
    return ("publish", tmp_path / "www", "mini", *no_extras)


def test_what_is_read_first_comes_last(maker: Site, client: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    said = maker.ok(*words(maker, tmp_path), "--to", str(store), "--by", client)
    assert said.splitlines()[-1] == f"{store}: brought up to date"
    assert as_served(store) == as_served(tmp_path / "www")
    first, index, listing, end = (tmp_path / "log").read_text().split("--\n")
    assert end == ""
    assert listing == "./releases.json\n"
    assert "./channel/linux-64/repodata.json" in index.splitlines()
    assert all("repodata" in name or "channeldata" in name for name in index.splitlines())
    assert "./channel/linux-64/toy-1.0-h0_0.conda" in first.splitlines()
    assert not any("repodata.json" in name for name in first.splitlines())
    assert not list((tmp_path / "www").glob(".upload-*"))
    user = Site(tmp_path / "user", "")
    shutil.rmtree(user.repo)
    user.extra["DDLCE_REPO"] = ""
    with served(store) as url:
        user.ok("env", "create", "mini", "--from", url)


def test_a_failing_command_ends_it(maker: Site, client: str, tmp_path: Path) -> None:
    """The listing is not sent after packages that are not all there."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "full").touch()
    said = maker.fails(1, *words(maker, tmp_path), "--to", str(store), "--by", client)
    assert "a client" in said
    assert "ended with 7: the store is full" in said
    assert "the same command again" in said
    assert (tmp_path / "log").read_text().count("--\n") == 1
    assert [path.name for path in store.iterdir()] == ["full"]
    assert not list((tmp_path / "www").glob(".upload-*"))


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--to", "s3://x"), 2, "--to and --by go together"),
        (("--by", "cp {from} {to}"), 2, "--to and --by go together"),
        (("--to", "s3://x", "--by", "cp {from}"), 2, "--by: 'cp {from}' has no {to}"),
        (("--to", "s3://x", "--by", "cp '{from} {to}"), 2, "No closing quotation"),
        (("--to", "s3://x", "--by", "absent {from} {to}"), 3, "absent: no such program"),
    ],
)
def test_what_is_no_command(
    maker: Site, tmp_path: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    said = maker.fails(code, *words(maker, tmp_path), *options)
    assert message in said
    if code == 2:
        assert not (tmp_path / "www").exists()
