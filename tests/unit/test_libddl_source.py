"""The source of libddl stays readable: no include circle, no long file, no long function.

No circle of files, of units (a header with its source), or of folders: so each folder can be read,
and changed, with those below it alone. This file, as a program, prints the picture of the folders:
`PYTHONPATH=tests .venv/bin/python tests/unit/test_libddl_source.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.imports import circle
from support.includes import folder, grouped, include_graph, picture, unit

REPO = Path(__file__).parents[2]
LIB = REPO / "recipes" / "ddl" / "src" / "lib"
STAGE = LIB.parent / "stage"
FILES = sorted(path for path in LIB.rglob("*") if path.suffix in (".c", ".cc", ".h", ".def"))
MAX_FILE = 400
MAX_FUNCTION = 60

# clang-format has a definition begin with its head and end with a brace, both at one indentation.
NOT_A_FUNCTION = re.compile(
    r"\s*(namespace|class|struct|union|enum|extern|switch|if|for|while|do)\b"
)


def functions(text: str) -> Iterator[tuple[str, int]]:
    """The first line and the number of lines of every function, methods among them."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if not line.endswith("{") or line.startswith("#"):
            continue
        head = i  # the head may take several lines: it begins after the one that ends something
        while head > 0 and not re.search(r"([;{}:]|^)$|//", lines[head - 1].rstrip()):
            head -= 1
        indent = len(lines[head]) - len(lines[head].lstrip())
        is_function = "(" in "".join(lines[head : i + 1]) and not NOT_A_FUNCTION.match(lines[head])
        if indent > 4 or not is_function:
            continue
        close = " " * indent + "}"
        end = next(j for j in range(i + 1, len(lines)) if lines[j].startswith(close))
        yield lines[head].strip(), end - head + 1


@pytest.mark.parametrize("root", [LIB, STAGE], ids=lambda root: root.name)
def test_no_circle_of_includes(root: Path) -> None:
    graph = include_graph(root)
    assert graph
    assert circle(graph) == []
    assert circle(grouped(graph, unit)) == []
    assert circle(grouped(graph, folder)) == []


def test_all_of_the_library_is_in_folders() -> None:
    assert [path.name for path in FILES if path.parent == LIB] == []


def test_the_picture_is_the_code() -> None:
    page = (REPO / "docs" / "architecture.md").read_text()
    assert picture(grouped(include_graph(LIB), folder)) in page


def test_circles_are_found(tmp_path: Path) -> None:
    """The files, then the units too, then the folders have none."""
    for name, text in {
        "low/a.h": "",
        "low/a.cc": '#include "low/a.h"\n#include "low/b.h"\n',
        "low/b.h": '#include "low/a.h"\n#include <vector>\n',
        "high/c.h": '#include "low/b.h"\n',
        "low/d.h": '#include "high/c.h"\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    graph = include_graph(tmp_path)
    assert circle(graph) == []
    assert {*circle(grouped(graph, unit))} == {"low/a", "low/b"}
    assert {*circle(grouped(graph, folder))} == {"low", "high"}
    (tmp_path / "low" / "d.h").unlink()
    (tmp_path / "low" / "a.cc").write_text('#include "low/a.h"\n')
    graph = include_graph(tmp_path)
    assert circle(grouped(graph, unit)) == circle(grouped(graph, folder)) == []
    assert picture(grouped(graph, unit)) == ("flowchart TD\n  high/c --> low/b\n  low/b --> low/a")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LIB)))
def test_a_file_is_readable(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE
    assert [found for found in functions(text) if found[1] > MAX_FUNCTION] == []


def test_functions_are_found() -> None:
    text = (LIB / "comm" / "agreement.cc").read_text()
    names = [re.sub(r".*?(\w+)\(.*", r"\1", head) for head, _ in functions(text)]
    assert {"Agreement", "watch_waits", "begin", "hear_of_hosts", "enforce"} <= set(names)
    assert dict(functions("void f(int a,\n       int b) {\n  a;\n}\n")) == {"void f(int a,": 4}


if __name__ == "__main__":
    print(picture(grouped(include_graph(LIB), folder)))
