"""The import graph of a Python package, read from its source."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

Graph = dict[str, set[str]]


def import_graph(package: Path) -> Graph:
    """Module → the modules of the same package that it imports, anywhere in its code.

    Imports inside functions count; those for type checkers alone do not.

    Args:
        package: the package's folder.
    """
    modules = {_name(package, path): path for path in package.rglob("*.py")}
    return {name: set(_imported(name, path, modules)) - {name} for name, path in modules.items()}


def circle(graph: Graph) -> list[str]:
    """Modules that import each other in a circle, the first one again at the end; none: []."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def _name(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    home = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in _nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        else:
            base = node.module or ""
            if node.level:
                above = home.split(".")[: len(home.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            wanted = [
                full if (full := f"{base}.{alias.name}") in modules else base
                for alias in node.names
            ]
        yield from (module for module in wanted if module in modules)


def _nodes(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from _nodes(other)
        else:
            yield from _nodes(node)
