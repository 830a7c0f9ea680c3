"""The include graph of a folder of C and C++, and its picture."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from support.imports import Graph

INCLUDE = re.compile(r'^#include "(.+)"', re.MULTILINE)
SUFFIXES = (".c", ".cc", ".h", ".def")


def include_graph(root: Path) -> Graph:
    """File → the files of the same folder that it includes, all by their path below `root`.

    Args:
        root: the folder that the compiler searches for `#include "…"`.
    """
    files = {path.relative_to(root) for path in root.rglob("*") if path.suffix in SUFFIXES}
    return {
        str(file): {
            name for name in INCLUDE.findall((root / file).read_text()) if Path(name) in files
        }
        for file in sorted(files)
    }


def unit(file: str) -> str:
    """The unit of a file: a header and its source are one."""
    return str(Path(file).with_suffix(""))


def folder(file: str) -> str:
    """The first folder of a file; a file in none stands for itself."""
    return Path(file).parts[0]


def grouped(graph: Graph, group_of: Callable[[str], str]) -> Graph:
    """The same graph between groups of files, as `unit` or `folder` make them."""
    groups: Graph = {}
    for file, included in graph.items():
        group = group_of(file)
        groups.setdefault(group, set()).update(map(group_of, included))
        groups[group].discard(group)
    return groups


def picture(graph: Graph) -> str:
    """A graph without circles as Mermaid draws it: an arrow from who includes to what is included.

    An arrow is left out where a longer way leads to the same group.
    """
    lines = ["flowchart TD"]
    for group, included in sorted(graph.items()):
        indirect = set().union(*(_reachable(graph, other) for other in included))
        lines += [f"  {group} --> {other}" for other in sorted(included - indirect)]
    return "\n".join(lines)


def _reachable(graph: Graph, start: str) -> set[str]:
    return set(graph[start]).union(*(_reachable(graph, other) for other in graph[start]))
