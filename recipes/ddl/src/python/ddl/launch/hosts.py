"""Host lists: `-H h1:4,node[01-18]` and hostfiles."""

import ipaddress
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ddl.launch.errors import LaunchError

MAX_HOSTS = 100_000

_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_BRACKETS = re.compile(r"\[([^\[\]]*)\](?::(.*))?")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class Host(NamedTuple):
    """A host and how many ranks it takes; `slots` None: not said."""

    name: str
    slots: int | None = None


def parse_hosts(text: str, where: str = "-host") -> list[Host]:
    """Hosts of a comma-separated list such as `h1:4,node[01-18]`; `where` names it in errors."""
    found: list[Host] = []
    entries = [entry.strip() for entry in split_outside_brackets(text)]
    if len(entries) > 1 and not entries[-1]:
        entries.pop()  # a comma at the end
    for entry in entries:
        if not entry:
            raise LaunchError(f"{where}: empty host name in '{text}'", "Write h1,h2 or h1:4,h2:4.")
        found += _entry(entry, where)
    return merge(found, where)


def _entry(entry: str, where: str) -> list[Host]:
    """The hosts of `pattern[:slots]`, or of an IPv6 address, in brackets where slots follow."""
    address, slots = _ipv6(entry, where)
    names = [_name_of(address, where)] if address else []
    if not address:
        pattern, colon, said = entry.partition(":")
        slots = said if colon else None
        names = expand(pattern, where)
    count = None if slots is None else _slots(slots, entry, where)
    return [Host(name, count) for name in names]


def _ipv6(entry: str, where: str) -> tuple[str, str | None]:
    """The IPv6 address of an entry, "" if it is none, and the text of its slots."""
    match = _BRACKETS.fullmatch(entry)
    text, slots = (match[1], match[2]) if match else (entry, None)
    if not _is_ipv6(text):
        return "", None
    shorter, _, last = text.rpartition(":")
    if not match and last.isdecimal() and _is_ipv6(shorter):
        raise LaunchError(
            f"{where}: '{entry}' may be an address, or another with slots",
            f"Write [{text}], or [{shorter}]:{last}.",
        )
    return text, slots


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.IPv6Address(text).scope_id is None
    except ValueError:
        return False


def _name_of(address: str, where: str) -> str:
    """The name of an IPv6 address, since MPICH's launcher takes none; else the address itself."""
    if ipaddress.IPv6Address(address).is_loopback:
        return "localhost"
    try:
        name = socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0]
    except OSError:
        name = socket.gethostname() if is_local(address) else ""
    if not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise LaunchError(
            f"{where}: {address} has no name, and MPICH's launcher takes no IPv6 address",
            "Give it a name in /etc/hosts or in ~/.ssh/config.",
        )
    return name


def parse_hostfile(path: Path) -> list[Host]:
    """Hosts of a file with one `name [slots=N]` or `name:N` a line; `#` starts a comment.

    Open MPI's `max_slots=N` may follow: no host is given more ranks than it has slots, anyway.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
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
    named = _entry(words[0].removesuffix(","), where)
    count = named[0].slots
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
    return [Host(host.name, count) for host in named]


def _slots(text: str, entry: str, where: str) -> int:
    number = whole_number(text)
    if not 1 <= number <= 65536:
        raise LaunchError(f"{where}: bad number of slots in '{entry}'", "Give a number from 1.")
    return number


def whole_number(text: str) -> int:
    """The number that is written so; -1 if it is none, or has more than nine digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else -1


def merge(hosts: Iterable[Host], where: str) -> list[Host]:
    """Each host once, in order; naming a host n times means n slots, as in a batch machinefile.

    Where one is named several times, so are the others: a host that is named once has one slot.
    """
    slots: dict[str, list[int | None]] = {}
    for host in hosts:
        slots.setdefault(host.name, []).append(host.slots)
    if len(slots) > MAX_HOSTS:
        raise LaunchError(f"{where}: more than {MAX_HOSTS} hosts")
    if all(len(given) == 1 for given in slots.values()):
        return [Host(name, given[0]) for name, given in slots.items()]
    return [Host(name, sum(count or 1 for count in given)) for name, given in slots.items()]


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
        raise LaunchError(f"{where}: '{name}' is not a host name", hint)
    return name


def is_loopback(name: str) -> bool:
    """Whether the words mean this machine on every machine, so that no other may be told them."""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_local(name: str) -> bool:
    """Whether the name is this machine: one of its addresses is our own."""
    if is_loopback(name):
        return True
    try:
        addresses = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False  # perhaps an alias of ~/.ssh/config: ssh will tell
    return any(_is_own(family, address) for family, _, _, _, address in addresses)


def address_towards(name: str) -> str:
    """The IPv4 address from which this machine goes to another; "" if it cannot be told."""
    try:
        addresses = socket.getaddrinfo(name, 9, socket.AF_INET, socket.SOCK_DGRAM)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(addresses[0][4])  # nothing is sent
            address: str = probe.getsockname()[0]
    except (OSError, UnicodeError):
        return ""
    return "" if is_loopback(address) else address


def _is_own(family: int, address: tuple[str | int, ...] | tuple[int, bytes]) -> bool:
    """Whether an address is of this machine. Nothing is sent.

    Binding alone does not tell: with ip_nonlocal_bind, every address can be bound. But no IPv4
    socket gets a route from a strange address, and to our own IPv6 address we go from itself.
    """
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            if family == socket.AF_INET:
                probe.bind((address[0], 0))
            probe.connect(address)
            return bool(probe.getsockname()[0] == address[0])
    except OSError:
        return False
