"""What a kernel spec says of variables, as Jupyter reads it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import Template

import pytest

from ddlce.errors import InputError
from ddlce.modulefile.classify import Change
from ddlce.modulefile.writer import HOME
from ddlce.overlay.kernel import Environment, kernel_variables, write_kernel
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


def test_of_two_at_once_one_gets_the_name(tmp_path: Path) -> None:
    """A stand-in for a Python with ipykernel, which takes its time to answer."""
    environments = []
    for name in ("one", "two"):
        python = tmp_path / name / "bin/python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\nsleep 0.5; echo '{}'\n")
        python.chmod(0o755)
        environments.append(Environment(tmp_path / name, "same", name, {}, ""))

    def write(environment: Environment) -> str:
        try:
            return str(write_kernel(environment, None, tmp_path / "kernels"))
        except InputError as error:
            return error.message

    with ThreadPoolExecutor() as pool:
        said = sorted(pool.map(write, environments))
    assert said[0] == str(tmp_path / "kernels/same")
    assert said[1].startswith(f"the kernel same in {tmp_path}/kernels is not that of {tmp_path}/")
