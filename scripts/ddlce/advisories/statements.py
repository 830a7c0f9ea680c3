"""What we say of holes: VEX statements in `recipes/vex.yaml`, in the words of OpenVEX.

They stand with the recipes, and in no package's digest: a statement builds nothing anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ddlce.errors import InputError
from ddlce.model.document import first_problem, load_model
from ddlce.settings import Settings

FILE = "vex.yaml"

Justification = Literal[
    "component_not_present",
    "vulnerable_code_not_present",
    "vulnerable_code_not_in_execute_path",
    "vulnerable_code_cannot_be_controlled_by_adversary",
    "inline_mitigations_already_exist",
]


class Statement(BaseModel):
    """What we say of one hole in one package of ours.

    Attributes:
        vulnerability: one of its numbers.
        package: ours.
        status: `fixed` by a patch without its number, or `not_affected`.
        justification: of `not_affected`, one of OpenVEX's words.
        statement: why, in a sentence or two.
        test: the test that shows it, `tests/unit/test_x.py::test_y`.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    vulnerability: Annotated[str, Field(pattern=r"^[A-Z]+-[\w-]+$")]
    package: str = Field(min_length=1)
    status: Literal["fixed", "not_affected"]
    justification: Justification | None = None
    statement: str = Field(min_length=1)
    test: str = ""

    @model_validator(mode="after")
    def _justified(self) -> Self:
        if (self.status == "not_affected") != (self.justification is not None):
            raise ValueError("not_affected needs a justification, and nothing else has one")
        return self


class Statements(BaseModel):
    """All statements of the tree."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    statements: list[Statement] = []


def load_statements(path: Path) -> list[Statement]:
    """The statements of a file.

    Raises:
        InputError: it is missing, or an entry is wrong.
    """
    loaded = load_model(
        path,
        Statements.model_validate,
        lambda _, error: InputError(f"{path}: {first_problem(error)}", "correct the file"),
        absent=InputError(f"there are no statements {path}", "name the file: --vex FILE"),
    )
    return loaded.statements


def statements_of(settings: Settings) -> list[Statement]:
    """The statements of the tree; none without a tree.

    Raises:
        InputError: an entry is wrong.
    """
    path = settings.recipes / FILE if settings.repo else None
    return load_statements(path) if path and path.is_file() else []
