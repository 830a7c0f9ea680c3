"""The package's modules import each other in one direction only, and so do its folders.

All imports count: those inside functions, and those for annotations alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import lms
import pytest

ROOT = Path(lms.__file__).parent

#: By module, those that it imports.
Graph = dict[str, set[str]]


def modules(root: Path) -> dict[str, Path]:
    """The modules of a package with their files; of a compiled one, the stub."""
    found = {}
    for file in sorted([*root.rglob("*.py"), *root.rglob("*.pyi")]):
        parts = (root.name, *file.relative_to(root).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    """The full names that a module of `package` imports, at its top or anywhere inside."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            source = ".".join([*base, node.module or ""]) if node.level else node.module
            yield from (f"{source}.{alias.name}".replace("..", ".") for alias in node.names)


def import_graph(root: Path) -> Graph:
    """The imports among the modules of a package."""
    known = modules(root)
    graph: Graph = {}
    for name, file in known.items():
        package = name if file.stem == "__init__" else name.rpartition(".")[0]
        graph[name] = set()
        for target in imported(ast.parse(file.read_text()), package):
            parts = target.split(".")
            prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
            graph[name] |= {next((prefix for prefix in prefixes if prefix in known), name)} - {name}
    return graph


def folders(graph: Graph) -> Graph:
    """The imports among the folders of a package; a module in none stands for itself."""
    named = {module: ".".join(module.split(".")[:2]) for module in graph}
    merged: Graph = {}
    for module, targets in graph.items():
        folder = merged.setdefault(named[module], set())
        folder |= {named[target] for target in targets} - {named[module]}
    return merged


def circle(graph: Graph) -> list[str]:
    """Some circle in a graph; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"a": "import pack.b", "b": "import os"}, set()),
        ({"a": "from pack import b", "b": "from pack.a import name"}, {"pack.a", "pack.b"}),
        ({"a": "def f():\n    from . import b", "b": "from .a import f"}, {"pack.a", "pack.b"}),
        (
            {"a": "if TYPE_CHECKING:\n    from pack.b import B", "b": "import pack.a as a"},
            {"pack.a", "pack.b"},
        ),
        ({"__init__": "from pack import a", "a": "from pack import name"}, {"pack", "pack.a"}),
    ],
    ids=["none", "at the top", "inside a function", "for annotations", "with the package"],
)
def test_circles_are_found(tmp_path: Path, sources: dict[str, str], expected: set[str]) -> None:
    root = tmp_path / "pack"
    root.mkdir()
    for name, text in sources.items():
        (root / f"{name}.py").write_text(text)
    assert set(circle(import_graph(root))) == expected


def test_modules_import_in_one_direction() -> None:
    graph = import_graph(ROOT)
    assert len(graph) > 20
    assert circle(graph) == []


def test_folders_import_in_one_direction() -> None:
    assert circle(folders(import_graph(ROOT))) == []
