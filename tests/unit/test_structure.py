"""How the code hangs together: no circles of imports, no files or functions that are too long."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.imports import circle, import_graph

REPO = Path(__file__).parents[2]
PACKAGES = sorted(
    path.parent.relative_to(REPO)
    for place in ("scripts/*", "recipes/*/src/*", "recipes/*/src/python/*")
    for path in REPO.glob(f"{place}/__init__.py")
)

LONGEST_FILE, LONGEST_FUNCTION = 400, 60
SUFFIXES = {".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".py", ".pyi", ".sh"}


def sources() -> list[Path]:
    """The source files that git knows."""
    command = ["git", "-c", "safe.directory=*", "-C", str(REPO), "ls-files", "-z"]
    names = subprocess.check_output(command, text=True).split("\0")
    return [REPO / name for name in names if Path(name).suffix in SUFFIXES]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and number of lines of each Python function in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.skipif(not (REPO / ".git").exists(), reason="needs git's list of files")
def test_no_file_is_too_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources()}
    assert len(lengths) > 500
    assert [path for path, length in lengths.items() if length > LONGEST_FILE] == []


@pytest.mark.skipif(not (REPO / ".git").exists(), reason="needs git's list of files")
def test_no_function_is_too_long() -> None:
    found = [
        (str(path.relative_to(REPO)), name, length)
        for path in sources()
        if path.suffix == ".py"
        for name, length in functions(path)
    ]
    assert len(found) > 3000
    assert [each for each in found if each[2] > LONGEST_FUNCTION] == []


def test_a_long_function_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("class A:\n  def f(self):\n" + "    pass\n" * 60 + "async def g(): ...\n")
    assert {*functions(path)} == {("f", 61), ("g", 1)}


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_no_circle_of_imports(package: Path) -> None:
    graph = import_graph(REPO / package)
    assert graph
    assert not circle(graph)


def test_a_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("def f():\n    from toy import b\n")
    (package / "b.py").write_text("import toy.c\n")
    (package / "c.py").write_text("from .a import f\nimport os\n")
    found = circle(import_graph(package))
    assert {*found} == {"toy.a", "toy.b", "toy.c"}
    (package / "c.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import f\n"
    )
    assert not circle(import_graph(package))
