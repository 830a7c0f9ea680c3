"""`channel/channel.yaml`: what the channel is called, who keeps it, and its subdirs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ddlce.errors import InputError
from ddlce.model.document import first_problem, load_model

#: The folder of SBOMs, beside the channel's subdirs.
SBOMS = "sbom"

Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Line = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\n]+$")]
WebAddress = Annotated[str, StringConstraints(pattern=r"^https?://\S+$")]


class Channel(BaseModel):
    """The channel's own description; the human pages show it.

    Attributes:
        name: the channel's short name, as in `-c NAME` of a mirrored channel.
        summary: one line for humans.
        subdirs: the platforms that clients may read; `noarch` is always among them.
        maintainers: who to ask.
        homepage: the project's page, or None.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    name: Word
    summary: Line
    subdirs: Annotated[list[Word], Field(min_length=1)]
    maintainers: Annotated[list[Line], Field(min_length=1)]
    homepage: WebAddress | None = None


def load_channel(path: Path) -> Channel:
    """Read `channel.yaml`.

    Raises:
        InputError: no such file, not YAML, or a field is wrong; names the file and the field.
    """
    channel = load_model(
        path,
        Channel.model_validate,
        lambda _, error: InputError(
            f"{path}: {first_problem(error)}",
            "the fields are name, summary, subdirs, maintainers and, optional, homepage",
        ),
        absent=InputError(
            f"no channel description at {path}", "run inside a clone of DDL-CE, or restore the file"
        ),
    )
    if "noarch" not in channel.subdirs:
        raise InputError(
            f"{path}: subdirs: 'noarch' is missing",
            "add noarch: conda clients refuse a channel without it",
        )
    return channel
