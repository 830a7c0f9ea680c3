"""System packages: the list in `system-packages.txt`, and how this machine installs them."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from ddlce.doctor.report import Check, State
from ddlce.programs import ask

LIST = Path(__file__).with_name("system-packages.txt")
PRESENT = "present"

#: The needs of `make` and `make test`; those of another platform are for who builds for it.
NEEDED = ("required", "test")
INSTALLERS = ("apt", "dnf", "zypper")

#: By the ID and ID_LIKE words of os-release.
FAMILIES = {"debian": "apt", "ubuntu": "apt", "fedora": "dnf", "rhel": "dnf", "suse": "zypper"}

COMMANDS = {
    "apt": ["apt-get", "install", "-y", "--no-install-recommends"],
    "dnf": ["dnf", "install", "-y"],
    "zypper": ["zypper", "--non-interactive", "install"],
}


@dataclass(frozen=True)
class Requirement:
    """One line of the list; see its head for the columns."""

    need: str
    check: str
    least: str
    packages: dict[str, str]
    why: str


def read_list(path: Path = LIST) -> list[Requirement]:
    """The requirements in the order of the file."""
    found = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            need, check, least, *packages, why = line.split(maxsplit=3 + len(INSTALLERS))
            names = dict(zip(INSTALLERS, packages, strict=True))
            found.append(Requirement(need, check, "" if least == "-" else least, names, why))
    return found


def check_package(wanted: Requirement) -> Check:
    """Is it there, and new enough?"""
    kind, _, target = wanted.check.rpartition(":")
    if kind == "path":
        found = next((f for pattern in target.split("|") for f in glob(pattern)), None)  # noqa: PTH207  # patterns are absolute
    elif kind == "python":
        found = PRESENT if importlib.util.find_spec(target) else None
    else:
        found = _version(target)
    state: State = "ok"
    if found is None:
        found, state = "not found", "optional"
    elif wanted.least and found != PRESENT and _key(found) < _key(wanted.least):
        found, state = f"{found} is older than {wanted.least}", "optional"
    if state != "ok" and wanted.need == "required":
        state = "missing"
    name = wanted.packages["apt"] if kind == "path" else target
    return Check(
        name, state, found, wanted.why, wanted.need, tuple(sorted(wanted.packages.items()))
    )


def _version(command: str) -> str | None:
    """The version that `command --version` prints, `PRESENT` if it prints none, None if absent."""
    path = shutil.which(command)
    if path is None:
        return None
    try:
        done = ask([path, "--version"])
    except OSError as error:
        return f"does not run: {error}"
    text = done.stdout + done.stderr
    # A distributor's note in brackets may hold another version, gcc (Debian 12.2.0-14) 12.2.0;
    # but perl puts its own there.
    for part in (re.sub(r"\([^)]*\)", "", text), text):
        if numbers := re.search(r"\d+(\.\d+)+", part):
            return numbers[0]
    return PRESENT


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def installer(os_release: Path = Path("/etc/os-release")) -> str | None:
    """`apt`, `dnf` or `zypper`, by the system's own description; None where it is another."""
    if not os_release.is_file():
        return None
    fields = dict(re.findall(r'^(ID|ID_LIKE)="?([^"\n]*)"?$', os_release.read_text(), re.M))
    words = [*fields.get("ID", "").split(), *fields.get("ID_LIKE", "").split()]
    return next((FAMILIES[word] for word in words if word in FAMILIES), None)


def install_command(checks: Iterable[Check], manager: str) -> list[str] | None:
    """The one command that brings all that is not there but needed, tests' needs included."""
    names = {
        dict(check.packages)[manager]
        for check in checks
        if check.state != "ok" and check.need in NEEDED and check.packages
    } - {"-"}
    return [*COMMANDS[manager], *sorted(names)] if names else None
