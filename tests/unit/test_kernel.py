"""What a kernel spec says of variables, as Jupyter reads it."""

from __future__ import annotations

from string import Template

import pytest

from ddlce.modulefile.classify import Change
from ddlce.modulefile.writer import HOME
from ddlce.overlay.kernel import kernel_variables
from support.moduleprefix import TRICKY


@pytest.mark.parametrize("name", TRICKY)
def test_values_come_out_as_they_are(name: str) -> None:
    """Jupyter fills them in by string.Template."""
    made = kernel_variables([Change(name, "set", (TRICKY[name],))], [])
    variables = {"PATH": "wrong", "HOME": "wrong", "id": "wrong"}
    assert Template(made[name]).safe_substitute(variables) == TRICKY[name]


def test_paths_and_homes() -> None:
    changes = [
        Change("PATH", "prepend", ("/r/bin", "/r/libexec")),
        Change("MANPATH", "prepend", ("/r/man",), tail=True),
        Change("CONDA_PKGS_DIRS", "append", (f"{HOME}/pkgs", "/r/pkgs"), ","),
    ]
    made = kernel_variables(changes, ["/o/$x/bin"])
    filled = {n: Template(v).safe_substitute(PATH="/usr/bin", HOME="/h") for n, v in made.items()}
    assert filled == {
        "PATH": "/o/$x/bin:/r/bin:/r/libexec:/usr/bin",
        "MANPATH": "/r/man:",
        "CONDA_PKGS_DIRS": "/h/pkgs,/r/pkgs",
    }
