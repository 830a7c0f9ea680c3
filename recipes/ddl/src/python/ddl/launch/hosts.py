"""Host lists: `-H h1:4,node[01-18]` and hostfiles."""

import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ddl.launch.errors import LaunchError

MAX_HOSTS = 100_000

_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class Host(NamedTuple):
    """A host and how many ranks it takes; `slots` None: not said."""

    name: str
    slots: int | None = None


def parse_hosts(text: str, where: str = "-host") -> list[Host]:
    """Hosts of a comma-separated list such as `h1:4,node[01-18]`; `where` names it in errors."""
    found: list[Host] = []
    for entry in split_outside_brackets(text):
        if not entry.strip():
            raise LaunchError(f"{where}: empty host name in '{text}'", "Write h1,h2 or h1:4,h2:4.")
        pattern, colon, slots = entry.strip().partition(":")
        count = _slots(slots, entry.strip(), where) if colon else None
        found += [Host(name, count) for name in expand(pattern, where)]
    return merge(found, where)


def parse_hostfile(path: Path) -> list[Host]:
    """Hosts of a file with one `name [slots=N]` or `name:N` a line; `#` starts a comment.

    Open MPI's `max_slots=N` may follow: no host is given more ranks than it has slots, anyway.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LaunchError(f"cannot read the hostfile {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LaunchError(f"the hostfile {path} is not a text file") from None
    except ValueError as error:  # no file can have this name
        raise LaunchError(f"cannot read the hostfile {str(path)!r}: {error}") from None
    found: list[Host] = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if words:
            found += _hostfile_line(words, f"{path}, line {number}")
    if not found:
        raise LaunchError(f"the hostfile {path} names no host", "Write one `name slots=N` a line.")
    return merge(found, str(path))


def _hostfile_line(words: list[str], where: str) -> list[Host]:
    pattern, colon, slots = words[0].partition(":")
    count = _slots(slots, words[0], where) if colon else None
    most = None
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key in ("max_slots", "max-slots") and equals:
            most = _slots(value, word, where)
            continue
        if key != "slots" or not equals:
            raise LaunchError(
                f"{where}: '{word}' is not understood", "Only slots=N and max_slots=N may follow."
            )
        if count is not None:
            raise LaunchError(f"{where}: the slots are given twice")
        count = _slots(value, word, where)
    if most and count and count > most:
        raise LaunchError(f"{where}: slots={count} is more than max_slots={most}")
    return [Host(name, count) for name in expand(pattern, where)]


def _slots(text: str, entry: str, where: str) -> int:
    number = whole_number(text)
    if not 1 <= number <= 65536:
        raise LaunchError(f"{where}: bad number of slots in '{entry}'", "Give a number from 1.")
    return number


def whole_number(text: str) -> int:
    """The number that is written so; -1 if it is none, or has more than nine digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else -1


def merge(hosts: Iterable[Host], where: str) -> list[Host]:
    """Each host once, in order; naming a host n times means n slots, as in a batch machinefile."""
    slots: dict[str, list[int | None]] = {}
    for host in hosts:
        slots.setdefault(host.name, []).append(host.slots)
    if len(slots) > MAX_HOSTS:
        raise LaunchError(f"{where}: more than {MAX_HOSTS} hosts")
    return [
        Host(name, given[0] if len(given) == 1 else sum(count or 1 for count in given))
        for name, given in slots.items()
    ]


def split_outside_brackets(text: str) -> list[str]:
    """Splits at the commas that are not inside `[...]`."""
    parts, depth = [""], 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def expand(pattern: str, where: str) -> list[str]:
    """Names of a pattern such as `node[01-03,7]`; a leading zero keeps the width."""
    names = [""]
    rest = pattern
    while "[" in rest:
        literal, _, tail = rest.partition("[")
        inside, bracket, rest = tail.partition("]")
        if not bracket:
            raise LaunchError(f"{where}: the bracket in '{pattern}' is not closed")
        numbers = _numbers(inside, pattern, where)
        if len(names) * len(numbers) > MAX_HOSTS:
            raise LaunchError(f"{where}: '{pattern}' is more than {MAX_HOSTS} hosts")
        names = [name + literal + number for name in names for number in numbers]
    return [checked_name(name + rest, where) for name in names]


def _numbers(text: str, pattern: str, where: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise LaunchError(
                f"{where}: bad range in '{pattern}'", "Write node[1-4] or node[01,03]."
            )
        first, last = match[1], match[2] or match[1]
        if int(first) > int(last):
            raise LaunchError(f"{where}: the range in '{pattern}' runs backwards")
        if int(last) - int(first) >= MAX_HOSTS:
            raise LaunchError(f"{where}: '{pattern}' is more than {MAX_HOSTS} hosts")
        width = len(first) if first.startswith("0") else 0
        numbers += [str(number).zfill(width) for number in range(int(first), int(last) + 1)]
    return numbers


def checked_name(name: str, where: str) -> str:
    """`name` if it is a host name or IPv4 address. Nothing else may reach ssh or mpiexec."""
    labels = name.removesuffix(".").split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        hint = "A host name has letters, digits, '-', '_' and '.'."
        if "@" in name:
            hint = "Put the user name into ~/.ssh/config."
        elif name.count(":") > 1:
            hint = "IPv6 addresses are not supported: give the host's name."
        raise LaunchError(f"{where}: '{name}' is not a host name", hint)
    return name


def is_local(name: str) -> bool:
    """Whether the name is this machine: only an address of our own can be bound."""
    if name == "localhost":
        return True
    try:
        addresses = socket.getaddrinfo(name, 0, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False  # perhaps an alias of ~/.ssh/config: ssh will tell
    for family, kind, protocol, _, address in addresses:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return True
    return False
