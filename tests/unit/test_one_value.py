"""Values that stand in two languages, or in two packages that cannot import each other."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "recipes"
LIBDDL = RECIPES / "ddl/src/lib"
DDL = RECIPES / "ddl/src/python/ddl"


def assigned(file: Path, name: str) -> object:
    """The value of a constant of a Python module, which is not imported."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return eval(ast.unparse(node.value), {"__builtins__": {}, "os": os})
    raise AssertionError(f"{file}: {name} is not there")


def number(file: Path, pattern: str) -> int:
    """The number that `pattern` finds in a file."""
    match = re.search(pattern, file.read_text())
    assert match, f"{file}: {pattern} is not there"
    return int(match[1])


def test_the_backends_that_ddl_stands_in_for() -> None:
    names = RECIPES / "ddl-torch/src/ddl_torch/_names.py"
    assert assigned(DDL / "launch/options.py", "BACKENDS") == assigned(names, "REPLACEABLE")


def test_the_largest_size_of_a_mode() -> None:
    bits = number(LIBDDL / "base/settings.cc", r'"-mode " \+ text, size, 1, 1 << (\d+)')
    assert assigned(DDL / "launch/layout.py", "_MOST") == 1 << bits


def test_lsf_starts_a_program_again_by_the_code_of_a_checkpointer() -> None:
    template = DDL / "launch/script/templates/lsf.template"
    code = assigned(DDL / "checkpoint/saver.py", "EXIT_PREEMPTED")
    assert number(template, r"#BSUB -Q (\d+)") == code


def test_the_exit_status_after_a_timeout() -> None:
    smoke = RECIPES / "ddl-ce-smoke/src/ddl_ce_smoke/launch.py"
    assert assigned(DDL / "launch/outcome.py", "EXIT_TIMEOUT") == assigned(smoke, "TIMED_OUT")


def test_the_digits_in_the_name_of_an_image() -> None:
    written = assigned(RECIPES.parent / "scripts/ddlce/env/imagefile.py", "NAME_DIGITS")
    assert number(DDL / "launch/image.py", r"_ENDING = .*\{(\d+)\}") == written


def test_the_format_of_images() -> None:
    image = RECIPES.parent / "scripts/ddlce/env/image.py"
    assert assigned(DDL / "launch/image.py", "FORMAT") == assigned(image, "FORMAT")
