"""`ddlce lock` with the real solver on a real channel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from rattler.explicit_environment import ExplicitEnvironmentSpec

from ddlce.engine.index import index_channel
from support.minienv import Site, served
from support.synthetic import make_package


def test_lock_is_written_once_and_names_no_machine(site: Site) -> None:
    first = json.loads(site.ok("lock", "mini", "--json"))
    assert [entry["state"] for entry in first] == ["written"]
    text = site.lock.read_text()
    assert str(site.folder) not in text
    assert "file:" not in text.replace("  file: ", "")
    before = site.lock.stat().st_mtime_ns
    assert [e["state"] for e in json.loads(site.ok("lock", "mini", "--json"))] == ["unchanged"]
    assert site.lock.stat().st_mtime_ns == before
    packages = {p["name"]: p for p in yaml.safe_load(text)["packages"]}
    assert packages["libmini"]["version"] == "1.2"  # 2.0 is there, and excluded by minimod
    assert packages["minimod"]["noarch"] == "python"


def test_comments_in_the_manifest_do_not_change_the_lock(site: Site) -> None:
    site.ok("lock", "mini")
    site.manifest.write_text("# a comment\n" + site.manifest.read_text())
    assert "unchanged" in site.ok("lock", "mini", "--check")


def test_check_finds_a_stale_lock_and_writes_nothing(site: Site) -> None:
    site.ok("lock", "mini")
    before = site.lock.read_text()
    site.manifest.write_text(site.manifest.read_text().replace("- mini-all", "- miniarch 0.3"))
    done = site.ddlce("lock", "mini", "--check")
    assert done.returncode == 1
    assert "stale" in done.stdout
    assert "  miniarch: 0.4 h0_0 → 0.3 h0_0\n" in done.stdout
    assert "  minimod: 1.0 pyh0_0 → none\n" in done.stdout
    assert done.stderr == "a lock is out of date; write it with: ddlce lock mini\n"
    assert site.lock.read_text() == before
    assert "written" in site.ok("lock", "mini")


def test_explain_says_who_needs_a_package(site: Site) -> None:
    text = site.ok("lock", "mini", "--explain")
    assert "  mini-all 2026.11 0  needed by manifest\n" in text
    assert "  python 3.11.7 h0_0  needed by miniarch, minimod\n" in text


def test_the_manifest_not_the_machine_has_the_glibc(site: Site) -> None:
    text = site.manifest.read_text().replace("- mini-all", "- mini-future")
    site.manifest.write_text(text.replace('"2.36"', '"2.99"'))
    assert "written" in site.ok("lock", "mini")
    site.manifest.write_text(text)
    assert site.fails(2, "lock", "mini") == (
        f"error: {site.manifest}: no set of packages satisfies the specs on linux-64:\n"
        "mini-future * cannot be installed because there are no viable options:\n"
        "└─ mini-future 1.0 would require\n"
        "   └─ __glibc >=2.99, for which no candidates were found.\n"
        "hint:  the specs are: mini-future; the machine is taken to have __glibc 2.36, "
        "__linux 4.18, __unix 0\n"
    )


def test_conflicting_specs_are_told_with_the_solvers_reason(site: Site) -> None:
    site.manifest.write_text(site.manifest.read_text().replace("specs:", "specs:\n  - mini-two"))
    message = site.fails(2, "lock", "mini")
    assert "The following packages are incompatible\n" in message
    assert "libmini >=1,<2" in message
    assert "hint:  the specs are: mini-two, mini-all;" in message
    assert not site.lock.exists()


def test_a_spec_that_does_not_parse(site: Site) -> None:
    site.manifest.write_text(site.manifest.read_text().replace("- mini-all", '- "numpy >=>2"'))
    message = site.fails(2, "lock", "mini")
    assert f"{site.manifest}: not a package spec: " in message


def test_platforms_that_the_channel_lacks_are_skipped(site: Site) -> None:
    site.manifest.write_text(
        site.manifest.read_text().replace("specs:", '  linux-ppc64le:\n    glibc: "2.28"\nspecs:')
    )
    text = site.ok("lock", "mini")
    assert "skipped    linux-ppc64le: the channel has no packages for it\n" in text
    assert "written    linux-64" in text
    assert [p.name for p in site.lock.parent.iterdir()] == ["mini.linux-64.lock"]


def test_no_channel(site: Site) -> None:
    site.channel = str(site.folder / "nowhere")
    message = site.fails(4, "lock", "mini")
    assert "nowhere has none of its platforms (linux-64)" in message
    assert "hint:  build it first: ddlce build && ddlce index\n" in message


def test_an_address_that_is_none(site: Site) -> None:
    site.channel = "http://[bad"
    message = site.fails(2, "lock", "mini")
    assert message.startswith("error: --channel: 'http://[bad' is no address: Invalid IPv6 URL\n")
    site.channel = str(site.folder)
    site.manifest.write_text(site.manifest.read_text() + 'channels: ["https://[bad"]\n')
    assert "error: channels: 'https://[bad' is no address: " in site.fails(2, "lock", "mini")


@pytest.mark.parametrize("text", ["", "[]", '{"packages.conda": {"a.conda": 1}}'])
def test_a_damaged_index_is_named(site: Site, text: str) -> None:
    index = Path(site.channel) / "linux-64/repodata.json"
    index.write_text(text)
    message = site.fails(4, "lock", "mini")
    assert message.startswith(f"error: {index}: not the index of a channel: ")


def test_no_manifest(site: Site) -> None:
    message = site.fails(2, "lock", "other")
    assert f"there is no environment manifest {site.manifest.with_name('other.yaml')}" in message
    assert "hint:  choose one of: mini\n" in message


def test_a_platform_that_has_not_all_yet_is_skipped(site: Site, tmp_path: Path) -> None:
    """But a name that no platform has is a mistake."""
    channel = Path(site.channel)
    (tmp_path / "prefix" / "share").mkdir(parents=True)
    (tmp_path / "prefix" / "share" / "other").write_text("other\n")
    make_package(channel / "linux-ppc64le", tmp_path / "prefix", "other")
    index_channel(channel)
    text = site.manifest.read_text().replace("- mini-all", "- miniarch")
    text = text.replace("specs:", '  linux-ppc64le:\n    glibc: "2.28"\nspecs:')
    site.manifest.write_text(text)
    shown = site.ok("lock", "mini")
    assert "written    linux-64" in shown
    assert "skipped    linux-ppc64le: the channel has no miniarch for it (yet)\n" in shown
    site.manifest.write_text(text.replace("- miniarch", "- minarch"))
    assert "minarch" in site.fails(2, "lock", "mini")


def test_the_same_lock_from_a_server(site: Site) -> None:
    site.ok("lock", "mini")
    before = site.lock.read_text()
    with served(Path(site.channel)) as url:
        site.channel = url
        for _ in range(3):  # the index is cached, and this server answers 304 in its own way
            assert "unchanged" in site.ok("lock", "mini")
        site.manifest.write_text(
            site.manifest.read_text().replace(
                "specs:", '  linux-ppc64le:\n    glibc: "2.28"\nspecs:'
            )
        )
        assert "skipped    linux-ppc64le" in site.ok("lock", "mini")
    assert site.lock.read_text() != before  # the manifest's digest
    message = site.fails(4, "lock", "mini")
    assert f"cannot read the channel {url}" in message


def test_explicit_file_is_what_stock_clients_read(site: Site) -> None:
    target = site.folder / "explicit.txt"
    site.ok("lock", "mini", "--explicit", target)
    spec = ExplicitEnvironmentSpec.from_path(target)
    assert str(spec.platform) == "linux-64"
    urls = [entry.url for entry in spec.packages]
    assert len(urls) == 5
    packages = {p["file"]: p for p in yaml.safe_load(site.lock.read_text())["packages"]}
    for url in urls:
        path, _, digest = url.removeprefix("file://").partition("#sha256:")
        assert Path(path).is_file()
        assert packages[Path(path).name]["sha256"] == digest
