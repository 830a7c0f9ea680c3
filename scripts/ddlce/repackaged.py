"""What packages made from other packagers' files have in common, be they wheels or Debian's.

A table beside the installer names them; all that an entry does not say comes from the files' own
metadata.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator

from ddlce.errors import InputError
from ddlce.model.document import first_problem, load_model


class TableEntry(BaseModel):
    """One package of a table.

    Attributes:
        why: the reason for each correction.
        add: run dependencies (conda match specs) that the metadata leaves out.
        drop: Python requirements (PyPI names) that do not apply here.
        constrains: run constraints (conda match specs).
        ignore_needed: sonames that need no package, because they are optional at run time.
        exclude: files (globs) that are left out.
        imports: names to import in the test instead of all top-level ones; none, if the test is
            in `commands` alone.
        commands: shell commands to run in the test.
        test_requires: packages (conda match specs) that the commands need.
        pip_check: whether `pip check` holds with this package in the environment.
        run_exports: how closely a package built on this one must match it: `x.x` keeps
            major and minor version; or the match spec, where upstream promises something else.
        build_prefix: stands before the build string, to tell variants apart (`cpu_`).
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    #: Fields that correct what the files say, each of which wants its reason in `why`.
    CORRECTIONS: ClassVar[tuple[str, ...]] = (
        *("add", "drop", "exclude", "ignore_needed", "imports", "pip_check"),
    )
    #: What a correction does, in words.
    CORRECTS: ClassVar[str]

    why: str = ""
    add: list[str] = []
    drop: list[str] = []
    constrains: list[str] = []
    ignore_needed: list[str] = []
    exclude: list[str] = []
    imports: list[str] | None = None
    commands: list[str] = []
    test_requires: list[str] = []
    pip_check: bool = True
    run_exports: str = ""
    build_prefix: str = ""

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        corrected = [name for name in self.CORRECTIONS if name in self.model_fields_set]
        if corrected and not self.why:
            raise ValueError(f"'{corrected[0]}' {self.CORRECTS}: say why in 'why'")
        return self


class Table(BaseModel):
    """A file of entries."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    #: What messages call such a file, and the part of the packager guide that describes it.
    KIND: ClassVar[str]
    GUIDE: ClassVar[str]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the table.

        Raises:
            InputError: absent, not YAML, or a wrong entry; names the file, entry and field.
        """
        return load_model(
            path,
            cls.model_validate,
            lambda _, error: InputError(
                f"{path}: {first_problem(error, ': ')}",
                f"the fields are described in docs/packager-guide.md, {cls.GUIDE}",
            ),
            absent=InputError(f"{path}: there is no such {cls.KIND} manifest"),
        )


def compiled_for(python: str) -> list[str]:
    """The run dependencies of what is compiled for a minor version of Python, "3.11".

    As in a recipe that is built on python: the bare name, and the python_abi that python exports,
    which constrains python to this version and implementation.
    """
    return ["python", f"python_abi {python}.* *_cp{python.replace('.', '')}"]


def requirements(name: str, entry: TableEntry, run: list[str]) -> dict[str, Any]:
    """A recipe's `requirements` with these run dependencies."""
    sections: dict[str, Any] = {"run": run}
    if entry.constrains:
        sections["run_constraints"] = entry.constrains
    if re.fullmatch(r"x(\.x)*", entry.run_exports):
        pin = f"pin_subpackage('{name}', upper_bound='{entry.run_exports}')"
        sections["run_exports"] = [f"${{{{ {pin} }}}}"]
    elif entry.run_exports:
        sections["run_exports"] = [entry.run_exports]
    return sections


def import_tests(entry: TableEntry, imports: list[str]) -> list[dict[str, Any]]:
    """The test that imports what the entry names, else `imports`; none where that is nothing."""
    names = imports if entry.imports is None else entry.imports
    return [{"python": {"imports": names, "pip_check": entry.pip_check}}] if names else []


def command_tests(entry: TableEntry) -> list[dict[str, Any]]:
    """The test that runs the entry's commands; none where there are none."""
    if not entry.commands:
        return []
    test: dict[str, Any] = {"script": entry.commands}
    if entry.test_requires:
        test["requirements"] = {"run": entry.test_requires}
    return [test]
