"""What a peer is: a library with an allreduce, and how its ranks are started in the lab."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from bench.lab.network import Lab

NETWORK = "10.77.0.0/24"
DEVICE = "eth0"


class CannotStart(Exception):
    """A peer's ranks cannot be started in this layout; the text says why."""


@dataclass(frozen=True)
class Probe:
    """What became of a measurement of the lab's links: its seconds, and what it has wrong."""

    seconds: float
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class Start:
    """What starts the ranks, on host h0, and the probe that went before."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    probe: Probe | None = None


class Peer(Protocol):
    """One row of the table."""

    name: str

    def prepare(self) -> None:
        """Installs and compiles what is needed, once.

        Raises:
            Unavailable: it cannot be had here.
        """

    def start(self, lab: Lab, hosts: list[str], arguments: list[str]) -> Start:
        """The command for one run.

        Args:
            lab: the lab; files go into its folder.
            hosts: the host of each rank.

        Raises:
            CannotStart: what goes before has failed.
        """


def hosts_file(lab: Lab, lines: list[str]) -> str:
    """A list of hosts for a launcher."""
    path = lab.folder / "machines"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)
