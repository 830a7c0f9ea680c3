"""Rules: a table of named functions, each documented by its docstring."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ddlce.lint.linted import LintedRecipe, OutputSection

Level = Literal["error", "hint"]


@dataclass(frozen=True)
class Problem:
    """What a rule says: a message, what to do, and where.

    Attributes:
        message: what is wrong.
        hint: what to do.
        line: in the recipe, or in `file`; None where it is about the whole.
        file: another file than the recipe.
    """

    message: str
    hint: str
    line: int | None = None
    file: Path | None = None


Check = Callable[[LintedRecipe], Iterator[Problem]]
OutputCheck = Callable[[LintedRecipe, OutputSection], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """A rule of the table.

    Attributes:
        id: `R` rules are conda-forge's too, `D` rules are this distribution's.
        name: for people.
        level: only an `error` fails `ddlce lint`.
        smithy: the ids of conda-smithy's rules that it covers.
        check: the function; its docstring is the documentation.
    """

    id: str
    name: str
    level: Level
    smithy: tuple[str, ...]
    check: Check

    @property
    def doc(self) -> str:
        """What the rule is and why."""
        return inspect.getdoc(self.check) or ""


#: All rules by id, in the order of their modules.
RULES: dict[str, Rule] = {}


def rule(
    rule_id: str, name: str, *, level: Level = "error", smithy: str = ""
) -> Callable[[Check], Check]:
    """Register a check under an id that is never given to another rule."""

    def register(check: Check) -> Check:
        if rule_id in RULES:
            raise ValueError(f"rule {rule_id} is registered twice")
        RULES[rule_id] = Rule(rule_id, name, level, tuple(smithy.split()), check)
        return check

    return register


def each_output(check: OutputCheck) -> Check:
    """Make a check of one package a check of all that the recipe makes; messages name them."""

    @functools.wraps(check)
    def check_all(recipe: LintedRecipe) -> Iterator[Problem]:
        for output in recipe.outputs:
            for problem in check(recipe, output):
                yield replace(problem, message=f"{output.name}: {problem.message}")

    return check_all
