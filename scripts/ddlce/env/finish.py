"""The end of each command that fills or changes an environment: what it is, and what it has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ddlce.env.layout import ORIGIN, Origin
from ddlce.env.records import Record, note_sizes, refuse_copies, unhash_links, write_history
from ddlce.files import write_atomic

#: Where conda has the variables that it sets when an environment is activated.
STATE = Path("conda-meta", "state")


def finish_records(records: Iterable[Record]) -> None:
    """Make of what rattler has just written what conda has: unsaved.

    Raises:
        WorkError: rattler has put a copy where a link should be.
    """
    records = list(records)
    refuse_copies(records)
    unhash_links(records)
    note_sizes(records)


def finish(
    prefix: Path,
    origin: Origin,
    command: str,
    records: list[Record],
    *,
    specs: list[str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Write what an environment is, and append the command to conda's history.

    Args:
        prefix: the environment, or the folder that becomes it.
        specs: what this command asked for; all that the origin names by default.
        variables: what conda sets when it activates the environment; none leaves them as they are.
    """
    write_atomic(prefix / ORIGIN, origin.model_dump_json(indent=2) + "\n")
    if variables:
        state = {"version": 1, "env_vars": dict(variables)}
        write_atomic(prefix / STATE, json.dumps(state, indent=2) + "\n")
    write_history(prefix, command, origin.specs if specs is None else specs, records)
