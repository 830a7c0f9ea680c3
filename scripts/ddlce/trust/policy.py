"""The settings file: whose signatures this machine wants on what it installs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ddlce.errors import InputError, MachineError
from ddlce.model.document import first_problem, load_model
from ddlce.ownership import others_may_change
from ddlce.userpath import absolute

#: The site's, then the user's; DDLCE_SETTINGS names another.
SITE_SETTINGS, OWN_SETTINGS = Path("/etc/ddl-ce/settings.yaml"), "~/.config/ddl-ce/settings.yaml"

_FIELDS = "the file says `signatures:` with `root:` and `metadata:`, or `signatures: unchecked`"


class Signatures(BaseModel):
    """Whose signatures are wanted.

    Attributes:
        root: the file with the root metadata that is trusted.
        metadata: the folder, or its http(s) address, with the channel's metadata.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    root: str = Field(pattern=r"^/")
    metadata: str = Field(pattern=r"^(/|file:///|https?://)")


class Policy(BaseModel):
    """A settings file.

    Attributes:
        signatures: whose are wanted; "unchecked" where a site wants none.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    signatures: Signatures | Literal["unchecked"]


def policy_file() -> Path | None:
    """The settings file of this user on this machine, if there is one. Reads DDLCE_SETTINGS."""
    if named := os.environ.get("DDLCE_SETTINGS"):
        return Path(absolute(named, "DDLCE_SETTINGS"))
    places = [SITE_SETTINGS]
    with contextlib.suppress(RuntimeError):  # a user without a home
        places.append(Path(OWN_SETTINGS).expanduser())
    # A link that leads nowhere is one that was meant: what it named is asked for.
    return next((path for path in places if os.path.lexists(path)), None)


def load_policy() -> Policy | None:
    """What the settings file says; None where there is none.

    Raises:
        InputError: it is wrong; names the field.
        MachineError: others could change it.
    """
    path = policy_file()
    if path is None:
        return None
    for place in (path, path.resolve()) if path.exists() else ():
        if reason := others_may_change(place):
            raise MachineError(f"{place} is not used, since {reason}", f"see: ls -l {place}")
    return load_model(
        path,
        Policy.model_validate,
        lambda _, error: InputError(f"{path}: {first_problem(error)}", _FIELDS),
        absent=InputError(
            f"there is no settings file {path}", "correct DDLCE_SETTINGS, or the link"
        ),
        hint=_FIELDS,
    )
