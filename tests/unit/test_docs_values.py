"""The page of values: each name that it gives is defined in the file beside it."""

from __future__ import annotations

import re

import pytest

from support.documents import REPO
from support.run import run

PAGE = REPO / "docs/howto/value.md"


def rows() -> list[tuple[str, list[str], list[str]]]:
    """The page's rows: a heading's folder, a row's files and its names."""
    found, folder = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            folder = (re.findall(r"`([^`]+)`", line) or [""])[-1]
            if "/" not in folder and folder != "recipes":
                folder = ""
        elif line.startswith("| ") and folder and "`" in line:
            _, files, names = line.strip("| ").rsplit("|", 2)
            found.append((folder, re.findall(r"`([^`]+)`", files), re.findall(r"`([^`]+)`", names)))
    return found


def is_defined(name: str, text: str) -> bool:
    """A constant with its value, or a structure of C++."""
    constant = rf"\b{name}(?:: [^=\n]+)?(?:\{{|\s*=[^=])|^{name}, \w+ = |^struct {name}\b"
    return re.search(constant, text, re.MULTILINE) is not None


def test_the_page_has_values_of_each_part() -> None:
    assert {folder.split("/")[-1] for folder, _, _ in rows()} == {"lib", "ddl", "recipes", "ddlce"}
    assert len(rows()) >= 40


@pytest.mark.parametrize(("folder", "files", "names"), rows())
def test_names_are_defined_in_their_files(folder: str, files: list[str], names: list[str]) -> None:
    texts = [(REPO / folder / file).read_text() for file in files]
    assert names
    for name in names:
        assert any(is_defined(name, text) for text in texts), f"{name}: not in {files}"


def test_a_use_is_no_definition() -> None:
    assert not is_defined("LEVEL", "compress(level=LEVEL, threads=2)\nif LEVEL == 3:\n")
    assert is_defined("LEVEL", "LEVEL, WORKERS = 6, 2\n")
    assert is_defined("kFar", "constexpr std::chrono::nanoseconds kFar{220};\n")


#: Files that are no product.
OUTSIDE = ("docs", "*.md", "tests", "*/tests/*", "*.lock")
#: Rows of the table of values in several files: the texts, and the files that have one.
SEVERAL = [
    [re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[2:4]]
    for line in PAGE.read_text().partition("## Values in several files")[2].splitlines()
    if line.startswith("| ") and "`" in line
]


@pytest.mark.skipif(not (REPO / ".git").exists(), reason="needs git's list of files")
@pytest.mark.parametrize(("texts", "files"), SEVERAL, ids=lambda cell: cell[0])
def test_values_in_several_files_stand_in_these_alone(texts: list[str], files: list[str]) -> None:
    product = [".", *(f":!{path}" for path in OUTSIDE)]
    words = [word for text in texts for word in ("-e", text)]
    assert run(["git", "grep", "-lF", *words, "--", *product], cwd=REPO).stdout.split() == sorted(
        files
    )


def test_the_table_of_values_in_several_files_is_read() -> None:
    assert len(SEVERAL) >= 8
    assert all(texts and len(files) > 1 for texts, files in SEVERAL)
