"""The settings file: whose signatures this machine wants on what it installs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ddlce.errors import InputError
from ddlce.model.document import first_problem, load_model
from ddlce.ownership import refuse_changeable
from ddlce.userpath import absolute

#: The site's, then the user's; DDLCE_SETTINGS names another.
SITE_SETTINGS, OWN_SETTINGS = Path("/etc/ddl-ce/settings.yaml"), "~/.config/ddl-ce/settings.yaml"

_FIELDS = (
    "the file says `signatures:` with `root:` and `metadata:`, or `signatures: unchecked`; for "
    "builds it says `cache:` with `at:` and `keys:`"
)


class Signatures(BaseModel):
    """Whose signatures are wanted.

    Attributes:
        root: the file with the root metadata that is trusted.
        metadata: the folder, or its http(s) address, with the channel's metadata.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    root: str = Field(pattern=r"^/")
    metadata: str = Field(pattern=r"^(/|file:///|https?://)")


class BuildCache(BaseModel):
    """Where builds take packages from.

    Attributes:
        at: a folder, or an http(s) address.
        keys: files with the public keys of trusted builders.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    at: str = Field(pattern=r"^(/|file:///|https?://)")
    keys: Annotated[list[Annotated[str, Field(pattern=r"^/")]], Field(min_length=1)]


class Policy(BaseModel):
    """A settings file.

    Attributes:
        signatures: whose are wanted; "unchecked" where a site wants none.
        cache: of builds.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    signatures: Signatures | Literal["unchecked"] | None = None
    cache: BuildCache | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.signatures is None and self.cache is None:
            raise ValueError("it says nothing")
        return self


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
    refuse_changeable(path)
    return load_model(
        path,
        Policy.model_validate,
        lambda _, error: InputError(f"{path}: {first_problem(error)}", _FIELDS),
        absent=InputError(
            f"there is no settings file {path}", "correct DDLCE_SETTINGS, or the link"
        ),
        hint=_FIELDS,
    )


def wanted_signatures() -> Signatures | None:
    """Whose signatures this machine wants; None where it wants none.

    Raises:
        DdlceError: as `load_policy`.
    """
    policy = load_policy()
    return policy.signatures if policy and isinstance(policy.signatures, Signatures) else None
