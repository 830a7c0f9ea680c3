"""YAML and JSON that others wrote: what would take all memory or all of the stack is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ddlce import jsontext, yamltext
from ddlce.absent import load_absent
from ddlce.debs.manifest import DebsManifest
from ddlce.errors import InputError
from ddlce.model.channel import load_channel
from ddlce.model.envlock import EnvLock
from ddlce.model.manifest import load_manifest
from ddlce.model.source import SourcesLock
from ddlce.recipes import load_recipe
from ddlce.wheels.manifest import WheelsManifest

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
BOMBS = {
    "aliases": (LAUGHS, "more than 1000000 values, counting each alias"),
    "merged": (LAUGHS.replace("[", "[{}, ") + "z:\n  <<: [*a11]\n", "more than 1000000 values"),
    "itself": ("a: &a [*a]\n", "an alias of what it stands in"),
    "lists": ("[" * 100_000, "nested more than 100 deep"),
    "mappings": ("{a: " * 100_000, "nested more than 100 deep"),
    "blocks": ("- " * 5_000 + "x", "nested more than 100 deep"),
    "a number": (f"a: {'9' * 5000}\n", "a value that cannot be read: Exceeds the limit"),
    "a day": ("a: 2026-99-99\n", "a value that cannot be read: month must be in 1..12"),
}
LOADERS: dict[str, Callable[[Path], object]] = {
    "lock": EnvLock.load,
    "manifest": load_manifest,
    "channel": load_channel,
    "sources": SourcesLock.load,
    "recipe": load_recipe,
    "absent": lambda path: load_absent(path, "linux-64"),
    "wheels": WheelsManifest.load,
    "debs": DebsManifest.load,
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_refused_at_once(kind: str) -> None:
    text, said = BOMBS[kind]
    start = time.monotonic()
    with pytest.raises(yaml.YAMLError, match=said):
        yamltext.load(text)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("kind", ["aliases", "lists", "a number"])
@pytest.mark.parametrize("loader", LOADERS)
def test_every_file_is_read_by_it(tmp_path: Path, loader: str, kind: str) -> None:
    path = tmp_path / "recipe" / "bomb.yaml"
    path.parent.mkdir()
    path.write_text(BOMBS[kind][0])
    with pytest.raises(InputError, match=str(path)) as caught:
        LOADERS[loader](path)
    assert BOMBS[kind][1] in caught.value.message


def test_what_people_write_is_read() -> None:
    text = "base: &b {x: 1}\nother: {<<: *b, y: [*b, *b]}\nday: 2026-11-01\n"
    assert yamltext.load(text)["other"] == {"x": 1, "y": [{"x": 1}, {"x": 1}]}
    assert yamltext.load("") is None


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '[1, "' + "x" * 40, "NaN x"])
def test_json_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        jsontext.load(text)


def test_json_is_no_longer_than_allowed() -> None:
    assert jsontext.load(b'{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match="longer than 8 bytes"):
        jsontext.load(b'{"a": [1]}', longest=8)
