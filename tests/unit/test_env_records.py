"""The records in conda-meta, which may be anybody's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddlce.env.records import read_records, refuse_copies, unhash_links
from ddlce.errors import InputError, WorkError
from ddlce.safepath import below_link, is_inside

NAMED = {"name": "a", "version": "1"}


def test_a_record_without_a_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "conda-meta").mkdir()
    path = tmp_path / "conda-meta" / "a-1-0.json"
    path.write_text(json.dumps({"version": "1", "paths_data": {"paths": []}}))
    with pytest.raises(InputError, match=f"{path}: not a package record .no name or no version"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "a/../../evil", "", "a//b", "./a", "a/", "..", "a\0b", 7, None]
)
def test_a_record_with_a_path_outside_is_refused(tmp_path: Path, name: object) -> None:
    (tmp_path / "conda-meta").mkdir()
    path = tmp_path / "conda-meta" / "a-1-0.json"
    data = {"paths_data": {"paths": [{"_path": "lib/good"}, {"_path": name}]}}
    path.write_text(json.dumps(NAMED | data))
    with pytest.raises(InputError, match=f"{path}: not a package record") as caught:
        read_records(tmp_path)
    assert "outside the environment" in caught.value.message


def test_plain_paths() -> None:
    assert all(map(is_inside, ["a", "a/b", "...", "a/..b/c", "lib/python3.11/x y", "a\\..\\b"]))
    assert not below_link("a/b/c", {"b", "a/b/c", "a/b/c/d"})
    assert below_link("a/b/c", {"a"})


def test_a_copy_in_place_of_a_link_is_refused(tmp_path: Path) -> None:
    """As rattler leaves one where the system makes no link."""
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    entry = {"_path": "link", "path_type": "softlink", "sha256_in_prefix": "0" * 64}
    (tmp_path / "conda-meta/a-1-0.json").write_text(
        json.dumps(NAMED | {"paths_data": {"paths": [entry]}})
    )
    records = read_records(tmp_path)
    refuse_copies(records)
    unhash_links(records)
    assert "sha256_in_prefix" not in records[0].entries[0]
    (tmp_path / "link").unlink()
    (tmp_path / "link").write_text("x")
    with pytest.raises(WorkError, match=f"{tmp_path}/link cannot be made a link"):
        refuse_copies(records)
