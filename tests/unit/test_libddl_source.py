"""The source of libddl stays readable: all in folders, no long function.

`test_structure.py` has the other limits, which are those of all sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
LIB = REPO / "recipes" / "ddl" / "src" / "lib"
FILES = sorted(path for path in LIB.rglob("*") if path.suffix in (".c", ".cc", ".h", ".def"))
LONGEST_FUNCTION = 60  # as LONGEST_FUNCTION of test_structure.py

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


def test_all_of_the_library_is_in_folders() -> None:
    assert [path.name for path in FILES if path.parent == LIB] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LIB)))
def test_a_file_is_readable(path: Path) -> None:
    assert [found for found in functions(path.read_text()) if found[1] > LONGEST_FUNCTION] == []


def test_functions_are_found() -> None:
    text = (LIB / "comm" / "agreement.cc").read_text()
    names = [re.sub(r".*?(\w+)\(.*", r"\1", head) for head, _ in functions(text)]
    assert {"Agreement", "watch_waits", "begin", "hear_of_hosts", "enforce"} <= set(names)
    assert dict(functions("void f(int a,\n       int b) {\n  a;\n}\n")) == {"void f(int a,": 4}
