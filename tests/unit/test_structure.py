"""How the code hangs together: no circles of imports, no files or functions that are too long."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import pictures
from support.needs import circle, folder_circles, folder_graphs, import_graph, include_graph
from support.run import run

REPO = Path(__file__).parents[2]
PACKAGES = sorted(
    path.parent.relative_to(REPO)
    for place in ("scripts/*", "recipes/*/src/*", "recipes/*/src/python/*")
    for path in REPO.glob(f"{place}/__init__.py")
)

#: Folders with C++ whose units include each other in one direction only.
CXX = ("recipes/ddl/src/lib", "recipes/ddl/src/stage", "recipes/ddl-torch/src")

#: Of functions in C++, tests/unit/test_libddl_source.py says it again.
LONGEST_FILE, LONGEST_FUNCTION = 400, 60
SUFFIXES = {".c", ".cc", ".cpp", ".cu", ".def", ".h", ".hpp", ".py", ".pyi", ".sh"}


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
def test_no_file_has_marks_of_a_merge() -> None:
    done = run(["git", "grep", "-n", "-I", "-E", "^(<{7}|>{7}) "], cwd=REPO)
    assert (done.returncode, done.stdout) == (1, ""), (
        done.stderr
    )  # 1: it has looked, and found none


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
    assert folder_circles(graph) == {}


def test_no_circle_of_the_tests_folders() -> None:
    graph = import_graph(REPO / "tests", base=REPO / "tests")
    assert len(graph) > 200
    assert not circle(graph)
    assert folder_circles(graph) == {}


@pytest.mark.parametrize("folder", CXX)
def test_no_circle_of_includes(folder: str) -> None:
    graph = include_graph(REPO / folder)
    assert len(graph) > 5
    assert not circle(graph)
    assert folder_circles(graph) == {}


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


def test_a_circle_of_folders_is_found(tmp_path: Path) -> None:
    """Neither module of one folder needs one that needs it, but the folders need each other."""
    for name, text in {
        "toy/__init__.py": "",
        "toy/a/__init__.py": "",
        "toy/a/one.py": "from toy.b import two\n",
        "toy/a/three.py": "",
        "toy/b/__init__.py": "",
        "toy/b/two.py": "from toy import files\n",
        "toy/files.py": "import toy.a.three\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = import_graph(tmp_path / "toy")
    assert not circle(graph)
    assert {*folder_circles(graph)["toy"]} == {"a", "b", "files"}
    (tmp_path / "toy/files.py").write_text("")
    assert folder_circles(import_graph(tmp_path / "toy")) == {}


def test_a_circle_of_includes_is_found(tmp_path: Path) -> None:
    """By way of a source: `a/x.cc` includes what includes its header."""
    for name, text in {
        "lib/a/x.h": "",
        "lib/a/x.cc": '#include "x.h"\n#include "b/y.h"\n#include <vector>\n',
        "lib/b/y.h": '#include "a/x.h"\n',
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = include_graph(tmp_path / "lib")
    assert {*circle(graph)} == {"lib.a.x", "lib.b.y"}
    assert {*folder_circles(graph)["lib"]} == {"a", "b"}


def test_pictures_are_the_code() -> None:
    text = pictures.PAGE.read_text(encoding="utf-8")
    assert len(pictures.PICTURES) == text.count("<!-- drawn: ")
    assert pictures.with_pictures(text) == text, "draw anew: python tests/support/pictures.py"


def test_an_arrow_goes_by_way_of_files_and_only_the_longest_way_is_drawn() -> None:
    graph = {"a": {"file", "c"}, "file": {"b"}, "b": {"c"}, "c": set[str]()}
    assert pictures.between(graph, {"a", "b", "c"}) == {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert pictures.reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {
        "a": {"b"},
        "b": {"c"},
        "c": set(),
    }


def test_what_is_in_a_folder_is_seen_as_wholes() -> None:
    graph = {"p": {"p.a.x"}, "p.a": set[str](), "p.a.x": {"p.b"}, "p.b": set[str]()}
    assert folder_graphs(graph)["p"] == {"__init__": {"a"}, "a": {"b"}, "b": set()}
