"""Reads the file of a timeline, or the parts that ranks of a failed job have left."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class TimelineError(Exception):
    """A file that cannot be read or written, or is no timeline; the text says which."""


@dataclass(frozen=True)
class Call:
    """A collective on a rank; times are microseconds since the job's begin."""

    rank: int
    group: str
    number: int  # among the group's calls
    name: str
    nbytes: int
    begin: float
    end: float
    has_failed: bool


@dataclass(frozen=True)
class Message:
    """A message to or from a rank, from its posting to its end."""

    rank: int
    peer: int
    is_recv: bool
    nbytes: int
    begin: float
    end: float


@dataclass(frozen=True)
class Rank:
    """What a rank says of itself."""

    host: str
    clock_error: float  # microseconds
    dropped: int  # events that were too many
    groups: dict[str, list[int]]


@dataclass
class Trace:
    """All that the files say."""

    ranks: dict[int, Rank] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)


def parts_of(file: Path) -> list[Path]:
    """The files of single ranks, in the order of ranks."""
    pattern = re.compile(re.escape(file.name) + r"\.rank-(\d+)")
    try:
        found = [(pattern.fullmatch(path.name), path) for path in file.parent.iterdir()]
    except OSError:
        return []
    return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def events_of(file: Path) -> list[Event]:
    """The events of one file.

    Raises:
        TimelineError: it cannot be read, or has none.
    """
    try:
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    except OSError as error:
        raise TimelineError(f"{file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise TimelineError(f"{file} is not a timeline of ddl") from None
    if not isinstance(events, list):
        raise TimelineError(f"{file} is not a timeline of ddl")
    return events


def read(file: Path) -> Trace:
    """Read a timeline.

    Where there are parts, they are newer: a job that begins removes those before it, and one that
    ends well leaves none.

    Raises:
        TimelineError: as `events_of`.
    """
    trace = Trace()
    for each in parts_of(file) or [file]:
        try:
            for event in events_of(each):
                _take(event, trace)
        except (KeyError, TypeError, AttributeError):
            raise TimelineError(f"{each} is not a timeline of ddl") from None
        if not trace.ranks:
            raise TimelineError(f"{each} is not a timeline of ddl")
    return trace


def join(file: Path) -> int:
    """Make one file of the parts, and remove them; return how many there were.

    Raises:
        TimelineError: there are none, or one of them, or the file, is not as it should be.
    """
    parts = parts_of(file)
    if not parts:
        raise TimelineError(f"there is no {file}.rank-N to join")
    events = [event for part in parts for event in events_of(part)]
    text = json.dumps({"displayTimeUnit": "ns", "traceEvents": events})
    unfinished = file.with_name(f"{file.name}.join-{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        try:
            with os.fdopen(os.open(unfinished, flags, 0o600), "w", encoding="utf-8") as stream:
                os.fchmod(stream.fileno(), 0o600)  # whatever the umask
                stream.write(text)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
        for part in parts:
            part.unlink()
    except OSError as error:
        raise TimelineError(f"cannot write {file}: {error.strerror}") from None
    return len(parts)


def _take(event: Event, trace: Trace) -> None:
    rank, args = event["pid"], event["args"]
    if event["name"] == "ddl_rank":
        dropped = args["dropped_collectives"] + args["dropped_messages"]
        trace.ranks[rank] = Rank(args["host"], args["clock_error_us"], dropped, args["groups"])
    if event["ph"] != "X":
        return
    begin, end = event["ts"], event["ts"] + event["dur"]
    if "call" in args:
        trace.calls.append(
            Call(
                *(rank, args["group"], args["call"], event["name"], args["bytes"], begin, end),
                has_failed="failed" in args,
            )
        )
    else:
        is_recv = "from" in args
        peer = args["from" if is_recv else "to"]
        trace.messages.append(Message(rank, peer, is_recv, args["bytes"], begin, end))
