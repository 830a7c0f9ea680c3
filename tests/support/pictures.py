"""The pictures in docs/architecture.md that show which folder needs which, drawn from the code.

    python tests/support/pictures.py

Writes them into the page. An arrow leads from a folder to one that it needs, itself or by way of
a file beside the folders. Arrows that a way over others says already are left out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.needs import Graph, folder_graphs, import_graph, include_graph

REPO = Path(__file__).parents[2]
PAGE = REPO / "docs" / "architecture.md"

#: Name of a picture → the folder that it shows.
PICTURES = {"ddlce": "scripts/ddlce", "libddl": "recipes/ddl/src/lib"}


def draw(name: str) -> str:
    """A picture, in mermaid's language."""
    folder = REPO / PICTURES[name]
    package = (folder / "__init__.py").is_file()
    graph = import_graph(folder) if package else include_graph(folder)
    inside = folder_graphs(graph)[folder.name]
    folders = {unit for unit in inside if (folder / unit).is_dir()}
    lines = ["flowchart LR"]
    for unit, needed in sorted(reduced(between(inside, folders)).items()):
        lines += [f"  {unit} --> {other}" for other in sorted(needed)]
    return "\n".join(lines)


def between(graph: Graph, nodes: set[str]) -> Graph:
    """The graph of some of the nodes: who needs whom, itself or by way of nodes left out."""
    found: Graph = {}
    for node in nodes:
        found[node], seen, todo = set(), set[str](), [*graph[node]]
        while todo:
            other = todo.pop()
            if other in nodes:
                found[node].add(other)
            elif other not in seen:
                seen.add(other)
                todo += graph.get(other, ())
        found[node].discard(node)
    return found


def reduced(graph: Graph) -> Graph:
    """A graph free of circles, without the arrows that longer ways imply."""
    reach: Graph = {}

    def below(node: str) -> set[str]:
        if node not in reach:
            reach[node] = graph[node].union(*(below(other) for other in graph[node]))
        return reach[node]

    return {
        node: needed - set().union(*(below(other) for other in needed))
        for node, needed in graph.items()
    }


def with_pictures(text: str) -> str:
    """A page with each of its pictures drawn anew; `<!-- drawn: NAME -->` stands before one."""

    def drawn(match: re.Match[str]) -> str:
        return f"{match[1]}\n```mermaid\n{draw(match[2])}\n```"

    return re.sub(r"(<!-- drawn: (\w+) .*-->)\n```mermaid\n[^`]*```", drawn, text)


if __name__ == "__main__":
    PAGE.write_text(with_pictures(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
