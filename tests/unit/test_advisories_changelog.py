"""`ddlce advisories` on Debian's changelogs, as packages and `apt-get changelog` have them."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
from pathlib import Path

import pytest

from ddlce.advisories.match import Result, find_holes
from ddlce.advisories.parts import read_parts
from ddlce.errors import InputError
from support.debs import make_deb

#: In the form of expat's, as Debian 12 has it.
CHANGELOG = """\
expat (2.5.0-1+deb12u3) bookworm-security; urgency=medium

  * Backport upstream security patches:
    - CVE-2026-1002: Fix a heap buffer over-read
      in XML_ParseBuffer.
    - CVE-2026-1003, cve-2026-1004: Two more.
  * Follow-up of CVE-2026-1001.

 -- A Maintainer <a@example.org>  Thu, 22 Oct 2026 00:34:41 +0200

expat (2.5.0-1+deb12u2) bookworm; urgency=medium

  [ B Maintainer ]
  * Backport security fix for CVE-2026-1001: denial of service.

 -- A Maintainer <a@example.org>  Mon, 31 Aug 2026 20:26:45 +0200

expat (2.4.9-1) unstable; urgency=high

  * New upstream release, with a fix of CVE-2022-0001.

 -- A Maintainer <a@example.org>  not a date
"""


def sbom(folder: Path) -> Path:
    """A package made of upstream's file with one of Debian's patches, and Debian's own files."""
    ours = {
        "name": "libexpat",
        "pedigree": {
            "ancestors": [{"purl": "pkg:deb/debian/expat@2.5.0-1%2Bdeb12u2?arch=source"}],
            "patches": [{"resolves": [{"id": "CVE-2026-1001"}]}],
        },
    }
    theirs = "pkg:deb/debian/libexpat1@2.5.0-1%2Bdeb12u2?arch=amd64&upstream=expat"
    debian = {"name": "debian-expat", "pedigree": {"ancestors": [{"purl": theirs}]}}
    path = folder / "x.cdx.json"
    path.write_text(json.dumps({"bomFormat": "CycloneDX", "components": [ours, debian]}))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def search(data: Path) -> Result:
    return find_holes(read_parts(sbom(data.parent)), data, ())


def found(data: Path) -> dict[tuple[str, str], str]:
    return {(f.part.package, f.hole): f.status for f in search(data).findings}


def deb(path: Path, name: str, text: str) -> None:
    make_deb(path, {f"usr/share/doc/libexpat1/{name}": gzip.compress(text.encode())})


def source_package(path: Path, text: str) -> None:
    with tarfile.open(path, "w:xz") as tar:
        info = tarfile.TarInfo("debian/changelog")
        info.size = len(text.encode())
        tar.addfile(info, io.BytesIO(text.encode()))


@pytest.mark.parametrize("kind", ["text", "deb", "native deb", "source package"])
def test_a_changelog_names_the_holes_that_its_versions_mend(data: Path, kind: str) -> None:
    if kind == "text":
        (data / "expat.changelog").write_text(CHANGELOG)
    elif kind == "source package":
        source_package(data / "expat_2.5.0-1+deb12u3.debian.tar.xz", CHANGELOG)
    else:
        name = "changelog.Debian.gz" if kind == "deb" else "changelog.gz"
        deb(data / "libexpat1_2.5.0-1+deb12u3_amd64.deb", name, CHANGELOG)
    assert found(data) == {
        ("libexpat", "CVE-2026-1001"): "fixed",
        ("libexpat", "CVE-2026-1002"): "open",
        ("libexpat", "CVE-2026-1003"): "open",
        ("libexpat", "CVE-2026-1004"): "open",
        # Mended in what it has, and mended better in what it has not.
        ("debian-expat", "CVE-2026-1001"): "open",
        ("debian-expat", "CVE-2026-1002"): "open",
        ("debian-expat", "CVE-2026-1003"): "open",
        ("debian-expat", "CVE-2026-1004"): "open",
    }
    result = search(data)
    assert (result.advisories, result.newest) == (5, "2026-10-22T00:34:41+02:00")
    (finding,) = (
        f for f in result.findings if f.hole == "CVE-2026-1002" and "deb" in f.part.package
    )
    assert finding.fixed == ("2.5.0-1+deb12u3",)
    assert finding.summary == "CVE-2026-1002: Fix a heap buffer over-read in XML_ParseBuffer."


def test_a_changelog_is_of_its_release_of_debian(data: Path) -> None:
    """Where it names none, a hole of all of them is said rather than left out."""
    (data / "a.changelog").write_text(CHANGELOG.replace("bookworm", "trixie").replace("12u", "13u"))
    assert found(data) == {}
    (data / "a.changelog").write_text(CHANGELOG.replace("bookworm-security", "stable-security"))
    assert len(found(data)) == 8
    (data / "a.changelog").write_text(
        CHANGELOG.replace("bookworm-security", "unstable").replace("+deb12u3", "0")
    )
    assert len(found(data)) == 8


def test_a_rolling_suite_is_looked_up_in_newer_releases(data: Path) -> None:
    """The data know no sid. A source from there had no holes at all, whatever they said."""
    purl = "pkg:deb/debian/expat@2.8.3-1~deb13u1?arch=source&distro=sid"
    ours = {"name": "libexpat", "pedigree": {"ancestors": [{"purl": purl}]}}
    path = data.parent / "expat.cdx.json"
    path.write_text(json.dumps({"bomFormat": "CycloneDX", "components": [ours]}))
    entry = (
        "expat ({}) {}-security; urgency=high\n\n  * CVE-2026-{}\n\n"
        " -- A <a@example.org>  Wed, 21 Oct 2026 16:54:24 +0700\n\n"
    )
    (data / "a.changelog").write_text(entry.format("2.5.0-1+deb12u5", "bookworm", 3001))
    only_older = find_holes(read_parts(path), data, ())
    assert only_older.findings == ()
    assert [part.package for part in only_older.left] == ["libexpat"]
    (data / "b.changelog").write_text(
        entry.format("2.9.0-1~deb13u1", "trixie", 3002)
        + entry.format("2.8.3-1", "trixie", 3003)  # that is the upstream release which ours is
    )
    result = find_holes(read_parts(path), data, ())
    assert [finding.hole for finding in result.findings] == ["CVE-2026-3002"]
    assert (result.parts, result.left) == (1, ())


def test_upstreams_own_tilde_in_a_rolling_suite(data: Path) -> None:
    """`1.3~beta-1` is before 1.3, whose holes it has; only the tail of a rebuild goes."""
    purl = "pkg:deb/debian/lib@1.3~beta-1~deb13u1?arch=source&distro=sid"
    ours = {"name": "lib", "pedigree": {"ancestors": [{"purl": purl}]}}
    path = data.parent / "lib.cdx.json"
    path.write_text(json.dumps({"bomFormat": "CycloneDX", "components": [ours]}))
    assert [part.version for part in read_parts(path)] == ["1.3~beta-1"]
    (data / "a.changelog").write_text(
        "lib (1.3-1) trixie-security; urgency=high\n\n  * CVE-2026-4001\n\n"
        " -- A <a@example.org>  Wed, 21 Oct 2026 16:54:24 +0700\n\n"
    )
    assert [f.hole for f in find_holes(read_parts(path), data, ()).findings] == ["CVE-2026-4001"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.changelog", b"A changelog of another kind.\n", "no changelog of Debian's"),
        ("x.changelog", b"\xff\xfe", "no changelog of Debian's"),
        ("x.deb", b"!<arch>\n", "not a Debian package"),
        ("x.debian.tar.xz", b"no archive", "x.debian.tar.xz: cannot be read"),
        ("x.debian.tar.xz", lzma.compress(b"\0" * 10240), "x.debian.tar.xz: no changelog in it"),
    ],
)
def test_what_is_no_changelog(data: Path, name: str, content: bytes, message: str) -> None:
    (data / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        search(data)
    assert message in caught.value.message
    assert caught.value.hint


def test_a_package_whose_changelog_is_in_another(data: Path) -> None:
    make_deb(data / "x.deb", {"usr/share/doc/x": "libx1"})
    with pytest.raises(InputError, match="no changelog in it") as caught:
        search(data)
    assert "another package of the same source" in (caught.value.hint or "")
    deb(data / "x.deb", "changelog.Debian.gz", "")
    with pytest.raises(InputError, match="no changelog of Debian's"):
        search(data)
    make_deb(data / "x.deb", {"usr/share/doc/x/changelog.gz": b"no gzip"})
    with pytest.raises(InputError, match="cannot be read"):
        search(data)


def test_patches_over_an_upstream_release_that_debian_took_whole(data: Path) -> None:
    """`3.0.22-1~deb12u1` is upstream's 3.0.22; the next one has patches, which we do not take."""
    purl = "pkg:deb/debian/openssl@3.0.22-1~deb12u2?arch=source"
    ours = {"name": "openssl", "pedigree": {"ancestors": [{"purl": purl}]}}
    path = data.parent / "openssl.cdx.json"
    path.write_text(json.dumps({"bomFormat": "CycloneDX", "components": [ours]}))
    (data / "openssl.changelog").write_text(
        "".join(
            f"openssl (3.0.22-1~deb12u{number}) bookworm-security; urgency=high\n\n"
            f"  * CVE-2026-200{number}\n\n"
            f" -- A <a@example.org>  Wed, 2{number} Oct 2026 16:54:24 +0700\n\n"
            for number in (2, 1)
        )
    )
    (finding,) = find_holes(read_parts(path), data, ()).findings
    assert finding.hole == "CVE-2026-2002"
