"""Which names, read from a file that others wrote, may become paths below a folder of ours."""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated

from pydantic import AfterValidator, Field


def is_inside(name: object) -> bool:
    """Whether a relative name stays below the folder that it is put into.

    It must be text, with no `.`, `..` or empty part, and no byte that ends a name.
    """
    if not isinstance(name, str) or "\0" in name:
        return False
    return not any(part in ("", ".", "..") for part in name.split("/"))


def below_link(name: str, links: Container[str]) -> bool:
    """Whether one of the paths `links` is a folder on the way to `name`."""
    parent = name.rpartition("/")[0]
    while parent and parent not in links:
        parent = parent.rpartition("/")[0]
    return bool(parent)


#: A word that becomes the name of a file or folder, or a part of one: it leads nowhere else.
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+!~-]*$")]


def _inside(name: str) -> str:
    if not is_inside(name):
        raise ValueError("leads outside the environment")
    return name


#: A relative path that `is_inside`.
InnerPath = Annotated[str, AfterValidator(_inside)]
