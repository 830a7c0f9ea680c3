"""channel.yaml: the tree's own, and each way to get it wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.errors import InputError
from ddlce.model.channel import load_channel
from ddlce.serve.pages import TEMPLATES, Pages, human_bytes

TREE = Path(__file__).parents[2]
GOOD = "name: toys\nsummary: Toys.\nsubdirs: [linux-64, noarch]\nmaintainers: [me]\n"
WORD = "String should match pattern '^[a-z0-9][a-z0-9._-]*$'"
FIELDS = "the fields are name, summary, subdirs, maintainers and, optional, homepage"


def test_the_tree_s_channel() -> None:
    channel = load_channel(TREE / "channel/channel.yaml")
    assert channel.name == "ddl-ce"
    assert {"linux-64", "noarch"} <= set(channel.subdirs)


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("name: toys", "name: Toys!", f"name: {WORD}", FIELDS),
        ("summary: Toys.\n", "", "summary: Field required", FIELDS),
        ("Toys.", "[a, b]", "summary: Input should be a valid string", FIELDS),
        ("noarch", "../noarch", f"subdirs.1: {WORD}", FIELDS),
        ("maintainers", "keepers", "maintainers: Field required", FIELDS),
        (", noarch", "", "subdirs: 'noarch' is missing",
         "add noarch: conda clients refuse a channel without it"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    tmp_path: Path, old: str, new: str, message: str, hint: str
) -> None:
    path = tmp_path / "channel.yaml"
    path.write_text(GOOD)
    load_channel(path)
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_channel(path)
    assert (caught.value.message, caught.value.hint) == (f"{path}: {message}", hint)


def test_no_file_and_no_yaml(tmp_path: Path) -> None:
    path = tmp_path / "channel.yaml"
    with pytest.raises(InputError) as caught:
        load_channel(path)
    assert caught.value.message == f"no channel description at {path}"
    path.write_text("name: [toys\n")
    with pytest.raises(InputError) as caught:
        load_channel(path)
    assert caught.value.message.startswith(f"{path}:2: not valid YAML: did not find expected")


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    for name in TEMPLATES[:-1]:
        (tmp_path / name).write_text("")
    with pytest.raises(InputError) as caught:
        Pages(tmp_path, load_channel(TREE / "channel/channel.yaml"))
    assert caught.value.message == f"no page template {tmp_path / TEMPLATES[-1]}"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (21_340_000, "21.3 MB"), (3e9, "3.0 GB")],
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert human_bytes(count) == text
