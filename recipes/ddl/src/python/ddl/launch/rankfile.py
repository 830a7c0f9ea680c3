"""Rank files: which rank runs where, as Open MPI and WML CE's ddlrun have them.

`rank 0=host`, and if wanted which cores it gets there: `slot=0:0-7` are cores 0 to 7 of socket 0,
`slot=0:*` all of that socket, `slot=0-3,6` cores counted over all sockets (mpirun(1), "Rankfiles").
"""

import re
from pathlib import Path
from typing import NamedTuple

from ddl.launch.errors import LaunchError
from ddl.launch.hosts import checked_name

_LINE = re.compile(r"rank\s+([0-9]{1,8})\s*=\s*(\S+)(?:\s+slots?\s*=\s*(\S+))?", re.IGNORECASE)
_NUMBERS = r"(?:\*|[0-9]{1,5}(?:-[0-9]{1,5})?)"
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_SLOT = re.compile(rf"(?:[0-9]{{1,3}}:)?{_NUMBERS}(?:,(?:[0-9]{{1,3}}:)?{_NUMBERS})*")


class Placement(NamedTuple):
    """Hosts, the number of each rank's host among them, and its slot ("": none is said)."""

    hosts: list[str]
    host_of: list[int]
    slots: list[str]


def read_rankfile(path: Path, names: list[str] | None) -> Placement:
    """The placement of every rank from 0; `names`: the hosts that it may use, None for any."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise LaunchError(f"cannot read the rankfile {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LaunchError(f"the rankfile {path} is not a text file") from None
    placed: dict[int, tuple[str, str]] = {}
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        where = f"{path}, line {number}"
        match = _LINE.fullmatch(text)
        if not match:
            hint = "Write `rank 0=host` or `rank 0=host slot=0:0-7`."
            raise LaunchError(f"{where}: '{text}' is not understood", hint)
        rank, name, slot = int(match[1]), checked_name(match[2], where), match[3] or ""
        if slot and not _SLOT.fullmatch(slot):
            hint = "Write cores of a socket as in slot=0:0-7 or slot=0:*, or of all: slot=0-3,6."
            raise LaunchError(f"{where}: slot={slot} is not understood", hint)
        backwards = next((a for a in _RANGE.finditer(slot) if int(a[1]) > int(a[2])), None)
        if backwards:
            hint = f"Write {backwards[2]}-{backwards[1]}."
            raise LaunchError(f"{where}: slot={slot}: {backwards[0]} runs backwards", hint)
        if names is not None and name not in names:
            raise LaunchError(f"{where}: host {name} is not among the hosts given: {_list(names)}")
        if rank in placed:
            raise LaunchError(f"{where}: rank {rank} is placed twice")
        placed[rank] = name, slot
    missing = next((rank for rank in range(len(placed)) if rank not in placed), None)
    if missing is not None or not placed:
        raise LaunchError(f"the rankfile {path} does not place rank {missing or 0}")
    in_order = [placed[rank] for rank in range(len(placed))]
    used = {name for name, _ in in_order}
    hosts = [name for name in names or dict.fromkeys(name for name, _ in in_order) if name in used]
    index = {name: number for number, name in enumerate(hosts)}
    return Placement(hosts, [index[name] for name, _ in in_order], [slot for _, slot in in_order])


def _list(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
