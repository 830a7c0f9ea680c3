"""The shaped cluster: network namespaces, veth pairs, bridges and htb, up for one `with` block.

Host i is the namespace `ddlh<i>` with the device eth0 and the address 10.77.0.<10+i>; all switches
are bridges in the namespace `ddlsw`. Both ends of a shaped link have an htb class of its rate over
a fifo of a switch's size (measured: within 0.1% of the rate). netem is absent from many kernels,
so there is no latency beyond the queues'; segments of at most 16 KiB keep the shaping smooth.

A process on each host keeps its own host name, /etc/hosts, /dev/shm and System V memory; without
those, ranks of different hosts would find each other's shared memory. The processes share one PID
namespace. One lab is up at a time on a machine: a second waits.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.lab.layout import Layout
from bench.lab.namespaces import SWITCH, LabError, kill_all, namespaces, processes, run_lines

LOCK = Path("/run/lock/ddl-lab.lock")
FOLDER = "ddl-lab-"
TOOLS = ("ip", "tc", "nsenter", "unshare", "setpriv")
SEGMENT = 16384
#: Bytes of a frame that are TCP's, IP's (v4) and Ethernet's: with TCP's time stamps.
HEADER = 66
HOST_QUEUE, SWITCH_QUEUE = "1m", "512k"

KEEP = "hostname {name} && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && "
KEEP += "mount --bind {hosts} /etc/hosts && {disk}echo ready && exec sleep infinity"
# A host's own disk: a tmpfs that the other hosts do not see.
DISK = "mkdir -p -m 755 {path} && mount -t tmpfs -o size={size}m,mode=755 tmpfs {path} && "


@dataclass
class Lab:
    """A cluster that is up.

    Attributes:
        layout: what it looks like.
        folder: for files of this lab: the hosts' list, the launcher, what a cell writes.
        keepers: the process that keeps each namespace.
        disk_mb: the size of each host's own disk; 0: there are none.
    """

    layout: Layout
    folder: Path
    keepers: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    disk_mb: int = 0

    @property
    def disk(self) -> Path:
        """Where each host has a disk of its own, if `bring_up` was asked for them."""
        return self.folder / "disk"

    def on_disk(self, host: str) -> Path:
        """A host's own disk, as this process sees it."""
        return Path(f"/proc/{self.keepers[host].pid}/root{self.disk}")

    @property
    def names(self) -> list[str]:
        """The hosts' names."""
        return [f"h{host}" for host in range(self.layout.hosts)]

    @property
    def launcher(self) -> Path:
        """What a launcher of ranks calls in place of rsh."""
        return self.folder / "enter"

    @property
    def tools(self) -> Path:
        """A folder for PATH, whose `ssh` reaches the hosts."""
        return self.folder / "bin"

    @property
    def counters(self) -> Path:
        """The byte counters of the switches' devices, as /proc/net/dev."""
        return Path(f"/proc/{self.keepers[SWITCH].pid}/net/dev")

    def address(self, host: str) -> str:
        """A host's address."""
        return _address(int(host[1:]))

    def uplink_bytes(self, text: str | None = None, *, headers: bool = True) -> dict[str, int]:
        """The bytes that each rack has sent and received on its uplink, as `rack0 out`.

        Args:
            text: an earlier content of `counters`; without it, what they say now.
            headers: count them too. A link's queue cuts the stream into frames, as a network card
                does, so that headers are 4.6% of a large message.
        """
        header = 0 if headers else HEADER
        found = {}
        for line in (text or self.counters.read_text()).splitlines():
            device, _, numbers = line.strip().partition(":")
            if device.startswith("up"):
                values = numbers.split()
                found[f"rack{device[2:]} in"] = int(values[0]) - header * int(values[1])
                found[f"rack{device[2:]} out"] = int(values[8]) - header * int(values[9])
        return found

    def crossed(self) -> int:
        """The bytes on the busiest uplink, in one direction, from `begin` to `end` of a worker."""
        begin, end = (self.uplink_bytes((self.folder / n).read_text()) for n in ("begin", "end"))
        return max((end[name] - begin[name] for name in end), default=0)

    def cut(self, host: str) -> None:
        """Pulls a host's cable."""
        run_lines("ip", SWITCH, [f"link set v{host[1:]} down"])

    def restore(self, host: str) -> None:
        """Plugs the cable in again."""
        run_lines("ip", SWITCH, [f"link set v{host[1:]} up"])

    def set_rate(self, link: str, mbit: float) -> None:
        """Changes a host's link ("h3") or a rack's uplink ("rack1"), in both directions."""
        number = link.lstrip("hrack")
        ends = [(SWITCH, f"v{number}"), (f"ddl{link}", "eth0")]
        if link.startswith("rack"):
            ends = [(SWITCH, f"up{number}"), (SWITCH, f"down{number}")]
        for namespace, device in ends:
            run_lines("tc", namespace, [_htb("change", device, mbit)])

    def shared_memory(self) -> list[str]:
        """The files in the hosts' /dev/shm, as `h0/NAME`."""
        return [
            f"{host}/{path.name}"
            for host in self.names
            for path in Path(f"/proc/{self.keepers[host].pid}/root/dev/shm").iterdir()
        ]

    def left_over(self) -> list[int]:
        """The processes on the hosts, other than those that keep them."""
        return [pid for pid in processes(namespaces()) if pid not in self._keeping()]

    def clear(self) -> int:
        """Kills every process on the hosts; returns how many there were."""
        return kill_all(namespaces(), self._keeping())

    def _keeping(self) -> set[int]:
        return {process.pid for process in self.keepers.values()}


@contextmanager
def bring_up(layout: Layout, disk_mb: int = 0) -> Iterator[Lab]:
    """A lab of this layout; when the block ends, in whatever way, nothing of it is left.

    Args:
        disk_mb: the size of a private disk (tmpfs) of each host; 0: none. All hosts see the
            machine's own disk as well, as a shared file system.

    Raises:
        LabError: this is not root's process, or a tool or a feature of the kernel is missing.
    """
    check_machine()
    with LOCK.open("w") as lock, _signals_raise():
        _wait_for(lock.fileno())
        _remove_all()
        lab = Lab(layout, Path(tempfile.mkdtemp(prefix=FOLDER)), disk_mb=disk_mb)
        try:
            _connect(layout)
            _keep(lab)
            yield lab
        finally:
            with _signals_blocked():
                _remove_all()
                for process in lab.keepers.values():
                    process.wait()


def check_machine() -> None:
    """Raises LabError where no lab can be brought up."""
    if os.geteuid() != 0:
        raise LabError("the lab makes network namespaces and must be run as root")
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        raise LabError(f"{missing[0]} is not there; apt-get install iproute2 util-linux")
    ask = ["nsenter", "--mount=/proc/self/ns/mnt", "stat", "--format=%d %i", "/"]
    root = Path("/").stat()
    if _said(ask) != f"{root.st_dev} {root.st_ino}":
        raise LabError("nsenter leaves a chroot; run the lab on the machine itself")


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def why_not() -> str:
    """Why no lab can be brought up here; "" if one can."""
    try:
        check_machine()
    except LabError as why:
        return str(why)
    return ""


def _wait_for(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another lab is up on this machine; waiting for its end", file=sys.stderr)
        fcntl.flock(lock, fcntl.LOCK_EX)


@contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as an interrupt does, so that it cleans up."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """A second interrupt waits until the block is done."""
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _connect(layout: Layout) -> None:
    """Namespaces, switches, cables and their rates."""
    hosts = range(layout.hosts)
    run_lines("ip", None, [f"netns add {name}" for name in (SWITCH, *(f"ddlh{i}" for i in hosts))])
    links, shapes = _racks(layout)
    for host in hosts:
        links += [f"link add v{host} type veth peer name eth0 netns ddlh{host}"]
        links += _port(f"v{host}", f"rack{layout.rack_of(host)}")
        shapes += _shape(f"v{host}", layout.mbit(host), SWITCH_QUEUE)
    run_lines("ip", SWITCH, ["link set lo up", *links])
    run_lines("tc", SWITCH, shapes)
    for host in hosts:
        up = [f"link set eth0 gso_max_size {SEGMENT} up", "link set lo up"]
        up += [f"addr add {_address(host)}/24 dev eth0 noprefixroute"]
        # Not every machine's default: the rates below are cubic's.
        up += [f"route add 10.77.0.0/24 dev eth0 src {_address(host)} congctl cubic"]
        run_lines("ip", f"ddlh{host}", up)
        run_lines("tc", f"ddlh{host}", _shape("eth0", layout.mbit(host), HOST_QUEUE))


def _racks(layout: Layout) -> tuple[list[str], list[str]]:
    """The commands for a bridge per rack, and one more where they meet."""
    bridges = [f"rack{rack}" for rack in range(len(layout.racks))]
    shaped: list[str] = []
    ports: list[str] = []
    if len(bridges) > 1:
        for rack, bridge in enumerate(bridges):
            ports += [f"link add up{rack} type veth peer name down{rack}"]
            ports += _port(f"up{rack}", bridge) + _port(f"down{rack}", "core")
            if layout.uplink_mbit:
                shaped += _shape(f"up{rack}", layout.uplink_mbit, SWITCH_QUEUE)
                shaped += _shape(f"down{rack}", layout.uplink_mbit, SWITCH_QUEUE)
        bridges.append("core")
    options = "type bridge forward_delay 0 stp_state 0 mcast_snooping 0"
    made = [f"link add {bridge} {options}" for bridge in bridges]
    return [*made, *(f"link set {bridge} up" for bridge in bridges), *ports], shaped


def _port(device: str, bridge: str) -> list[str]:
    return [f"link set {device} master {bridge} gso_max_size {SEGMENT} up"]


def _shape(device: str, mbit: float, queue: str) -> list[str]:
    return [
        f"qdisc replace dev {device} root handle 1: htb default 1",
        _htb("add", device, mbit),
        f"qdisc add dev {device} parent 1:1 handle 10: bfifo limit {queue}",
    ]


def _htb(verb: str, device: str, mbit: float) -> str:
    rate = f"rate {mbit:g}mbit ceil {mbit:g}mbit burst 32k cburst 32k quantum 16000"
    return f"class {verb} dev {device} parent 1: classid 1:1 htb {rate}"


def _address(host: int) -> str:
    return f"10.77.0.{10 + host}"


def _keep(lab: Lab) -> None:
    """Starts the process that keeps each host, and the switches."""
    hosts = lab.folder / "hosts"
    lines = [f"{lab.address(name)} {name}\n" for name in lab.names]
    hosts.write_text("".join(["127.0.0.1 localhost\n", *lines]))
    shutil.copy(Path(__file__).parent / "enter.sh", lab.launcher)
    lab.tools.mkdir()
    shutil.copy(Path(__file__).parent / "ssh.sh", lab.tools / "ssh")
    lab.keepers[SWITCH] = _keeper(SWITCH, ["sh", "-c", "echo ready && exec sleep infinity"])
    for name in lab.names:
        disk = DISK.format(path=lab.disk, size=lab.disk_mb) if lab.disk_mb else ""
        script = KEEP.format(name=name, hosts=hosts, disk=disk)
        own = ["unshare", "--uts", "--ipc", "--mount", "sh", "-c", script]
        lab.keepers[name] = _keeper(f"ddl{name}", own)
        (lab.folder / f"{name}.pid").write_text(str(lab.keepers[name].pid))


def _keeper(namespace: str, command: list[str]) -> subprocess.Popen[str]:
    """Starts a process in a namespace that ends with this one; returns it when it is ready."""
    inside = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", namespace, *command]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        inside, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, process_group=0
    )
    assert process.stdout
    assert process.stderr
    with process.stdout, process.stderr:
        if process.stdout.readline() != "ready\n":
            raise LabError(f"{namespace} did not come up: {process.stderr.read().strip()}")
    return process


def _remove_all() -> None:
    """Takes down what is up, of this run or a killed one."""
    left = namespaces()
    kill_all(left, set())
    run_lines("ip", None, [f"netns del {path.name}" for path in left])
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        shutil.rmtree(folder)
