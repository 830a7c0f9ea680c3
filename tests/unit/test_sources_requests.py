"""What a person or a recipe asks for, and how the lock changes by it."""

from __future__ import annotations

import pytest

from ddlce.errors import InputError
from ddlce.model.source import Source, SourcesLock
from ddlce.sources.apt import with_source_packages
from ddlce.sources.resolve import Request, merged, request_for


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("pypi:numpy==2.3.4", Request("pypi-wheel", "numpy", "2.3.4")),
        ("pypi:numpy", Request("pypi-wheel", "numpy")),
        ("pypi-sdist:x==1", Request("pypi-sdist", "x", "1")),
        ("debian-source:ssl=3.0-1~deb12u1", Request("debian-source", "ssl", "3.0-1~deb12u1")),
        ("debian-binary:libstdc++6", Request("debian-binary", "libstdc++6")),
        ("url:https://x.org/a=b", Request("url", "https://x.org/a=b")),
    ],
)
def test_a_request_is_read(text: str, request_: Request) -> None:
    assert Request.parse(text) == request_


@pytest.mark.parametrize(
    "text", ["numpy", "conda:numpy", "pypi:", "pypi:a b", "pypi:x==", "debian-source:X/Y"]
)
def test_nonsense_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Request.parse(text)
    assert repr(text) in caught.value.message


@pytest.mark.parametrize(
    ("url", "request_", "file"),
    [
        ("pypi://a==1/a-1-py3-any.whl", Request("pypi-wheel", "a", "1"), "a-1-py3-any.whl"),
        ("pypi://a==1/a-1.tar.gz", Request("pypi-sdist", "a", "1"), "a-1.tar.gz"),
        ("debian-source://xz/xz.orig.tar.xz", Request("debian-source", "xz"), "xz.orig.tar.xz"),
        ("https://x.org/y/z.tgz", Request("url", "https://x.org/y/z.tgz"), "z.tgz"),
    ],
)
def test_recipe_urls(url: str, request_: Request, file: str) -> None:
    assert request_for(url) == (request_, file)


@pytest.mark.parametrize("url", ["ftp://x/y", "debian-source://xz", "debian-source://xz/a/b", ""])
def test_a_recipe_url_that_names_nothing_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="names no client and file"):
        request_for(url)


def entry(version: str, file: str, digest: str, subdir: str | None = None) -> Source:
    return Source(
        client="debian-source",
        package="p",
        version=version,
        file=file,
        size=1,
        sha256=digest * 64,
        subdir=subdir,
    )


def test_a_new_version_replaces_all_files_of_the_old() -> None:
    lock = SourcesLock(sources=[entry("1", "a", "1"), entry("1", "b", "2")])
    assert merged(lock, [entry("2", "c", "3")]).sources == [entry("2", "c", "3")]


def test_files_of_one_version_stand_side_by_side() -> None:
    lock = SourcesLock(sources=[entry("1", "a", "1")])
    assert len(merged(lock, [entry("1", "b", "2")]).sources) == 2


def test_platforms_stand_side_by_side() -> None:
    lock = SourcesLock(sources=[entry("1", "a", "1", "linux-64")])
    assert len(merged(lock, [entry("2", "b", "2", "linux-ppc64le")]).sources) == 2


def test_versions_can_be_kept() -> None:
    lock = SourcesLock(sources=[entry("1", "a", "1")])
    assert len(merged(lock, [entry("2", "b", "2")], keep_versions=True).sources) == 2


def test_apt_sources_in_both_formats_get_source_packages() -> None:
    deb822 = "Types: deb\nURIs: http://m/debian\nSuites: bookworm\nSigned-By: /k.gpg\n"
    assert with_source_packages("d.sources", deb822) == deb822.replace("deb\n", "deb deb-src\n", 1)
    lines = "# a comment\ndeb [trusted=yes] http://m/debian bookworm main\ndeb-src http://old x y\n"
    assert with_source_packages("d.list", lines) == (
        "deb [trusted=yes] http://m/debian bookworm main\n"
        "deb-src [trusted=yes] http://m/debian bookworm main\n"
    )
