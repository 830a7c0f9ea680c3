"""The page of modules names each of them, and each module says what it is for."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest

import module_map
from support.documents import REPO

pytestmark = pytest.mark.skipif(not (REPO / ".git").exists(), reason="needs git's list of files")


def test_each_module_says_what_it_is_for() -> None:
    found = module_map.modules()
    assert len(found) > 100
    silent = {
        str(folder / module)
        for folder, table in found.items()
        for module, (sentence, _) in table.items()
        if not sentence and module != "__init__.py"
    }
    assert not silent


def test_the_page_names_each_folder_and_file_with_code() -> None:
    """Read as its readers do: a heading, and the files below it."""
    folder, named = "", set[str]()
    for line in module_map.page().splitlines():
        if line.startswith("## "):
            folder = line.strip("# `")
        elif line.startswith("| `"):
            files = re.findall(r"`([^`]+)`", line.split(" | ")[0])
            stem = files[0].rpartition(".")[0]
            named |= {f"{folder}/{f'{stem}{file}' if file[0] == '.' else file}" for file in files}
    wanted = {str(path) for path in module_map.files() if path.name != "__init__.py"}
    assert len(wanted) > 800
    assert wanted - named == set()


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.py", '"""One\ntwo. Three."""\n', "One two."),
        ("a.py", "X = 1\n", ""),
        (
            "a.h",
            "// Copyright somebody\n// One: two,\n// three.\n#pragma once\n",
            "One: two, three.",
        ),
        ("a.c", "/* One.\n * Two.\n */\n", "One."),
        ("a.h", "// One.\n//   an: example\n", "One."),
        ("a.sh", "#!/bin/sh\n# One.\nset -e\n", "One."),
        ("a.cc", "#include <vector>\n// One.\n", ""),
    ],
)
def test_first_sentences(name: str, text: str, sentence: str) -> None:
    assert module_map.first_sentence(name, text) == sentence


def test_constants_are_found() -> None:
    python = "A, _B = 1, (2, 3)\nC: int = A << 4\nD = f()\nlower = 1\nclass E:\n    F = 1\n"
    assert module_map.constants("a.py", python) == ["A", "_B", "C"]
    cxx = "constexpr int kA = 1;\n  static constexpr std::chrono::seconds kB{2};\n"
    row = "constexpr Row kRow = [] {\n"
    assert module_map.constants("a.h", cxx + row + "int kC = 3;\n") == ["kA", "kB"]


def test_a_header_and_a_source_are_one_module() -> None:
    table = module_map.rows(PurePosixPath("recipes/ddl/src/lib/base"), ["wait.cc", "wait.h"])
    assert [*table] == ["wait.h`, `.cc"]
    assert table["wait.h`, `.cc"][1] == ["kYielding", "kSleep"]
