"""Hosts of a test: namespaces with a name and a network each, joined by a bridge.

Their processes share this machine's files, but not its shared memory.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

_HUB = "10.77.0.1"
_UNSHARE = ["unshare", "-m", "-n", "-u"]
_OWN_MEMORY = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
#: Says that it is there, and ends with the one who has started it.
_STAY = (
    f"ip link set lo up && hostname {{name}} && mount --bind {{hosts}} /etc/hosts && {_OWN_MEMORY}"
)
# Nobody answers questions for names: so they are refused at once.
_STAY += " && mount --bind /dev/null /etc/resolv.conf && echo here && exec cat"


def may_make_hosts() -> bool:
    """Whether this user may, with the programs of this machine."""
    words = "ip link add try0 type veth peer name try1 && ip link add try2 type bridge"
    tried = [*_UNSHARE, "sh", "-c", f"{words} && hostname x && {_OWN_MEMORY}"]
    try:
        return subprocess.run(tried, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class Hosts:
    """Some hosts and a hub, whose address all of them reach."""

    hub_address = _HUB

    def __init__(self, count: int) -> None:
        names = {self.address(n): f"host{n}" for n in range(count)} | {_HUB: "hub"}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "hosts")
            # torch asks for these of IPv4 in IPv6, too.
            lines = [f"{a} {name}\n::ffff:{a} {name}\n" for a, name in names.items()]
            file.write_text("".join(["127.0.0.1 localhost\n", *lines]))
            *self._processes, self._hub = (self._start(name, file) for name in names.values())
        self._run(self._hub, "ip link add hub0 type bridge; ip link set hub0 up")
        self._run(self._hub, f"ip addr add {_HUB}/24 dev hub0")
        for number, process in enumerate(self._processes):
            self._run(
                self._hub,
                f"ip link add to{number} type veth peer name eth0 netns {process.pid} && "
                f"ip link set to{number} master hub0 up",
            )
            self._run(
                process, f"ip addr add {self.address(number)}/24 dev eth0; ip link set eth0 up"
            )

    def on(self, number: int | None) -> list[str]:
        """The words before a command that is to run on that host; None: on the hub."""
        return self._on(self._hub if number is None else self._processes[number])

    @staticmethod
    def address(number: int) -> str:
        """That of a host."""
        return f"10.77.0.{number + 2}"

    def cut(self, number: int) -> None:
        """Take the cable away; nobody is told."""
        self._run(self._hub, f"ip link set to{number} nomaster")

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for process in (*self._processes, self._hub):
            process.communicate()

    @staticmethod
    def _start(name: str, hosts: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*_UNSHARE, "sh", "-c", _STAY.format(name=name, hosts=hosts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        assert process.stdout.readline() == "here\n"
        return process

    @staticmethod
    def _on(process: subprocess.Popen[str]) -> list[str]:
        return ["nsenter", "-t", str(process.pid), "-m", "-n", "-u"]

    def _run(self, process: subprocess.Popen[str], words: str) -> None:
        subprocess.run([*self._on(process), "sh", "-ec", words], check=True)
