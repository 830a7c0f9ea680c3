"""Every command's help shows its texts as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from ddlce.cli.app import program
from ddlce.cli.common import app


def texts(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each help text, with the command that shows it."""
    for part in (command, *command.params):
        for name in ("help", "epilog"):
            if text := getattr(part, name, None):
                yield path, text
    for name, inner in getattr(command, "commands", {}).items():
        yield from texts(inner, (*path, name))


TEXTS = list(texts(get_command(app)))


def words(text: str) -> str:
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


def shown(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    program().main([*path, "--help"], prog_name="ddlce", standalone_mode=False)
    return words(capsys.readouterr().out)


@pytest.mark.parametrize("path", sorted({path for path, _ in TEXTS}), ids=" ".join)
def test_nothing_is_lost(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 1000)
    page = shown(path, capsys)
    for where, text in TEXTS:
        if where == path:
            for paragraph in re.split(r"\n\s*\n", text.split("\f")[0]):
                assert words(paragraph) in page


def test_there_are_brackets_to_lose() -> None:
    assert sum("[env DDLCE_ROOT]" in text for _, text in TEXTS) > 5
    assert any("[==V]" in text for _, text in TEXTS)


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        *(
            (path, "--subdir", "--platform")
            for path in ("plan", "build", "debug", "index", "sources add", "sources recipe")
        ),
        ("fetch", "--into", "--out"),
        ("module", "--into", "--out"),
    ],
)
def test_the_old_name_of_an_option_stays(path: str, old: str, new: str) -> None:
    """One word for one thing; scripts of users may have the word that was there first."""
    command: Any = get_command(app)
    for name in path.split():
        command = command.commands[name]
    assert any(option.opts == [new, old] for option in command.params)


def test_one_thing_has_one_name() -> None:
    def options(command: Any) -> Iterator[str]:
        yield from (param.opts[0] for param in command.params)
        for inner in getattr(command, "commands", {}).values():
            yield from options(inner)

    names = {*options(get_command(app))}
    assert {"--platform", "--out"} <= names
    assert not {"--subdir", "--into"} & names
