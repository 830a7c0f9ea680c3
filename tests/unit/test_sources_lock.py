"""sources.lock: what is written is what is read, and what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.errors import InputError
from ddlce.model.source import Source, SourcesLock
from ddlce.settings import Settings
from ddlce.sources.locking import compare, same_files

GOOD = Source(
    client="url", package="x", file="x.tgz", size=3, sha256="a" * 64, url="https://x.org/x.tgz"
)
DEBIAN = Source(
    client="debian-source", package="zlib", version="1:1-1", file="z.tar", size=9, sha256="b" * 64
)


def test_round_trip_is_sorted_and_stable(tmp_path: Path) -> None:
    path = tmp_path / "sources.lock"
    SourcesLock(sources=[GOOD, DEBIAN]).dump(path)
    first = path.read_text()
    read = SourcesLock.load(path)
    assert [s.client for s in read.sources] == ["debian-source", "url"]
    assert read.by_sha256("a" * 64) == GOOD
    read.dump(path)
    assert path.read_text() == first


@pytest.mark.parametrize(
    ("files", "pattern"),
    [
        (["lib_1.orig.tar.xz", "lib_1.orig-more.tar.xz"], "*.orig*"),
        (["lib_1.orig.tar.xz", "lib_1-2.debian.tar.xz"], "*"),
        (["lib_1_amd64.deb"], "*"),  # no source: an update asked for its .orig, which it has not
    ],
)
def test_an_update_takes_the_files_that_were_locked(files: list[str], pattern: str) -> None:
    client = "debian-binary" if files[0].endswith(".deb") else "debian-source"
    old = [DEBIAN.model_copy(update={"client": client, "file": file}) for file in files]
    assert same_files(old) == pattern


def test_a_recipe_s_own_values_stand_in_the_name_of_its_source(tmp_path: Path) -> None:
    """`sources sync` asked pip for `x==${{ version }}`."""
    folder = tmp_path / "recipes" / "x"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(
        'context: {version: "1.2"}\npackage: {name: x, version: "${{ version }}"}\n'
        "source:\n  url: pypi://x==${{ version }}/x-${{version}}.whl\n"
        f"  sha256: {'e' * 64}\n"
    )
    SourcesLock(sources=[]).dump(tmp_path / "sources.lock")
    settings = Settings(repo=tmp_path, cache=tmp_path / "cache", root=tmp_path / "root")
    (said,) = compare(settings)
    assert f"/recipes/x/recipe.yaml: pypi://x==1.2/x-1.2.whl (sha256 {'e' * 64}) is not" in said


def test_unknown_digest_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        SourcesLock(sources=[GOOD]).by_sha256("c" * 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sources: [", "not valid YAML"),
        ("[1]", "Input should be a valid dictionary"),
        ("sources: 3", "field 'sources'"),
        ("sources:\n- {client: url, package: q, file: f, size: 1}", "entry 1 (f): field 'sha256'"),
        (
            f"sources:\n- {{client: url, package: q, file: f, size: 1, sha256: {'a' * 64}}}",
            "entry 1 (f): Value error, client 'url' needs the field 'url'",
        ),
        (
            f"sources:\n- {{client: pypi-sdist, package: q, file: f, size: 1, sha256: {'a' * 64}}}",
            "needs the field 'version'",
        ),
        (
            "sources:\n- {client: debian-source, package: q, version: '1', file: ../f, size: 1, "
            f"sha256: {'a' * 64}}}",
            "entry 1 (../f): field 'file'",
        ),
        (
            "sources:\n- {client: debian-source, package: q, version: '1', file: f, size: 0, "
            f"sha256: {'A' * 64}, colour: red}}",
            "field 'size'",
        ),
        (
            "sources:\n- {client: pypi-wheel, package: q, version: '1', file: f, size: 1, "
            f"sha256: {'a' * 64}, wheel: "
            "{name: q, version: '1', pure: true, tags: [], glibc: 2.28x}}",
            "field 'wheel.glibc'",
        ),
    ],
)
def test_a_wrong_lock_names_file_entry_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "sources.lock"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        SourcesLock.load(path)
    assert str(path) in caught.value.message
    assert message in caught.value.message
    assert caught.value.hint


def test_the_same_bytes_twice_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="twice"):
        SourcesLock(sources=[GOOD, GOOD.model_copy(update={"file": "y"})])


def test_a_missing_lock_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such sources lock") as caught:
        SourcesLock.load(tmp_path / "sources.lock")
    assert caught.value.hint
    assert "ddlce sources add" in caught.value.hint


def test_recipe_urls_name_client_and_file() -> None:
    assert GOOD.recipe_url == "https://x.org/x.tgz"
    assert DEBIAN.recipe_url == "debian-source://zlib/z.tar"
    assert DEBIAN.spec == "debian-source:zlib=1:1-1"
