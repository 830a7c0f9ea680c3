"""Who needs whom: a graph of Python modules by their imports, or of C++ units by their includes."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

#: Name → the names that it needs. Folders are divided by dots: `ddlce.plan.model`.
Graph = dict[str, set[str]]

#: What a folder's own file is called among the files in it: `__init__.py`.
OWN = "__init__"


def import_graph(package: Path, base: Path | None = None) -> Graph:
    """Module → the modules of the same package that it imports, anywhere in its code.

    Imports inside functions count; those for type checkers alone do not.

    Args:
        base: the folder from which modules are named; the one above by default.
    """
    base = base or package.parent
    modules = {_name(base, path): path for path in package.rglob("*.py")}
    return {name: set(_imported(name, path, modules)) - {name} for name, path in modules.items()}


def include_graph(top: Path) -> Graph:
    """C++ unit → the units below `top` that it includes; `x.h`, `x.cc` and `x.cu` are one unit."""
    top = top.resolve()
    suffixes = {".h", ".hpp", ".c", ".cc", ".cpp", ".cu"}
    paths = [path for path in top.rglob("*") if path.suffix in suffixes]
    names = {path: ".".join(path.relative_to(top.parent).with_suffix("").parts) for path in paths}
    graph: Graph = {name: set() for name in names.values()}
    for path in paths:
        for file in re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            for found in ((path.parent / file).resolve(), (top / file).resolve()):
                if found in names and names[found] != names[path]:
                    graph[names[path]].add(names[found])
                    break
    return graph


def folder_graphs(graph: Graph) -> dict[str, Graph]:
    """Folder → the graph of what is directly in it, its files and its folders as wholes.

    Without a circle in any of these, no two folders need each other.
    """
    graphs: dict[str, Graph] = {}
    for name, needed in graph.items():
        parts = name.split(".")
        for depth in range(len(parts)):
            graphs.setdefault(".".join(parts[:depth]), {}).setdefault(parts[depth], set())
        for other in needed:
            above, mine, theirs = _parting(name, other)
            folder = graphs.setdefault(above, {})
            folder.setdefault(mine, set()).add(theirs)
            folder.setdefault(theirs, set())
    return graphs


def _parting(name: str, other: str) -> tuple[str, str, str]:
    """The folder that two modules share, and the part of it that each is in."""
    ours, theirs = name.split("."), other.split(".")
    depth = 0
    while depth < min(len(ours), len(theirs)) and ours[depth] == theirs[depth]:
        depth += 1
    parts = [(*each, OWN)[depth] if depth <= len(each) else OWN for each in (ours, theirs)]
    return ".".join(ours[:depth]), parts[0], parts[1]


def circle(graph: Graph) -> list[str]:
    """Names that need each other in a circle, the first one again at the end; none: []."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def folder_circles(graph: Graph) -> dict[str, list[str]]:
    """Folder → what in it needs each other in a circle; only folders that have one.

    A package's `__init__.py` stands for what the package offers: it may need all that is beside it,
    and what is deeper may need it.
    """
    found: dict[str, list[str]] = {}
    for folder, inside in folder_graphs(graph).items():
        others = {name: needed - {OWN} for name, needed in inside.items() if name != OWN}
        if names := circle(others):
            found[folder] = names
    return found


def _name(base: Path, path: Path) -> str:
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == OWN else parts)


def _imported(name: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    home = name if path.name == f"{OWN}.py" else name.rpartition(".")[0]
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
