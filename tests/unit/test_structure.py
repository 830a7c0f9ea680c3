"""How the code hangs together: no circles of imports, no files that are too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.imports import circle, import_graph

REPO = Path(__file__).parents[2]
PACKAGES = sorted(
    path.parent.relative_to(REPO)
    for place in ("scripts/*", "recipes/*/src/*", "recipes/*/src/python/*")
    for path in REPO.glob(f"{place}/__init__.py")
)


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
