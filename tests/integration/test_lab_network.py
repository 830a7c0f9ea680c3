"""The lab of `make bench`: its hosts are apart, its cables can be cut, and nothing of it stays."""

from __future__ import annotations

import fcntl
import json
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.lab.cell import Budget, measure
from bench.lab.layout import parse_layout
from bench.lab.namespaces import namespaces
from bench.lab.network import LOCK, Lab, bring_up
from bench.lab.peers.base import Start
from bench.lab.run import run_on
from integration.lab import needs_lab

TESTS = Path(__file__).parents[1]
pytestmark = needs_lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    with bring_up(parse_layout("ragged-2+1")) as up:
        yield up


def say(lab: Lab, host: str, script: str) -> str:
    outcome = run_on(lab, host, ["bash", "-c", script], {}, 20)
    assert outcome.orphans == 0
    return outcome.stdout.strip() or outcome.stderr.strip()


def test_hosts_have_names_and_memory_of_their_own(lab: Lab) -> None:
    assert [say(lab, host, "hostname") for host in lab.names] == ["h0", "h1", "h2"]
    say(lab, "h0", "touch /dev/shm/of-h0")
    assert say(lab, "h0", "ls /dev/shm") == "of-h0"
    assert say(lab, "h1", "ls /dev/shm") == ""
    assert not Path("/dev/shm/of-h0").exists()
    assert say(lab, "h1", "getent hosts h2") == "10.77.0.12      h2"


def test_a_cut_host_is_not_reached_until_it_is_restored(lab: Lab) -> None:
    ask = "timeout 1 bash -c '</dev/tcp/h2/9'"  # nobody listens there
    assert "refused" in say(lab, "h0", ask)
    lab.cut("h2")
    assert "refused" not in say(lab, "h0", ask)
    assert "refused" in say(lab, "h0", "timeout 1 bash -c '</dev/tcp/h1/9'")
    lab.restore("h2")
    assert "refused" in say(lab, "h0", ask)


def test_only_what_leaves_a_rack_counts_on_its_uplink(lab: Lab) -> None:
    receive = "import socket as s; s = s.create_server(('', 9)); print('ready', flush=True)\n"
    receive += "c = s.accept()[0]\nwhile c.recv(65536): pass"
    send = "import socket; s = socket.create_connection(('{}', 9)); s.sendall(bytes(1 << 18))"

    def transfer(target: str) -> int:
        before = lab.uplink_bytes()["rack0 out"]
        command = [str(lab.launcher), target, f'python3 -c "{receive}"']
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listening:
            assert listening.stdout
            assert listening.stdout.readline() == "ready\n"
            say(lab, "h0", f'python3 -c "{send.format(target)}"')
        return lab.uplink_bytes()["rack0 out"] - before

    assert transfer("h1") < 10_000
    assert 1 << 18 < transfer("h2") < 1.1 * (1 << 18)


def test_a_command_over_its_limit_is_killed_with_all_that_it_started(lab: Lab) -> None:
    script = f"{lab.launcher} h1 'sleep 1000' & {lab.launcher} h2 'setsid sleep 1000' & wait"
    outcome = run_on(lab, "h0", ["bash", "-c", script], {}, 1)
    assert outcome.code is None
    assert outcome.orphans >= 1
    assert lab.left_over() == []


def test_what_a_command_leaves_running_is_counted_and_killed(lab: Lab) -> None:
    command = ["bash", "-c", "setsid sleep 1000 < /dev/null > /dev/null 2>&1 & echo done"]
    outcome = run_on(lab, "h0", command, {}, 20)
    assert (outcome.code, outcome.stdout, outcome.orphans) == (0, "done\n", 1)
    assert lab.left_over() == []


class Fake:
    """A peer whose worker is a line of shell."""

    name = "fake"

    def __init__(self, script: str) -> None:
        self._script = script

    def prepare(self) -> None:
        """Nothing to do."""

    def start(self, lab: Lab, hosts: list[str], arguments: list[str]) -> Start:
        before, after = (lab.counters.read_text(), lab.folder / "end")
        (lab.folder / "begin").write_text(before)
        after.write_text(before)
        return Start(["bash", "-c", self._script])


def say_report(*hosts: str) -> str:
    report = {"times": [1.0, 3.0], "wrong": 0, "hosts": hosts, "cpu": 2, "library": "x"}
    return shlex.join(["echo", json.dumps(report)])


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("echo 'no route' >&2; exit 3", "exit 3: no route"),
        ("true", "exit 0: no message"),
        ("sleep 1000", "not done after 1 s"),
        ('echo \'{"times": [1.0], "wrong": 7}\'', "7 elements are wrong"),
        (say_report("h0", "h2", "h1"), "its ranks are on h0 h2 h1"),
        (say_report("h0", "h1", "h2"), ""),
    ],
)
def test_every_outcome_is_a_cell(lab: Lab, script: str, failure: str) -> None:
    cell = measure(lab, "sorted", 4096, Fake(script), Budget(limit=1))
    assert cell.failure == failure
    assert cell.times == (() if failure else (1.0, 3.0))


def has_ended(pid: str) -> bool:
    """Also when nobody has collected it yet: an orphan waits for init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_of_a_lab_outlives_its_process(number: int) -> None:
    script = f"""
        import signal, subprocess, sys
        sys.path.insert(0, {str(TESTS)!r})
        from bench.lab.network import bring_up
        from bench.lab.layout import parse_layout
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with bring_up(parse_layout("flat-2")) as lab:
            worker = subprocess.Popen([str(lab.launcher), "h1", "sleep 1000"])
            print(lab.folder, worker.pid, flush=True)
            worker.wait()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        name, worker = process.stdout.readline().split()
        folder = Path(name)
        assert folder.is_dir()
        process.send_signal(number)
    if number == signal.SIGKILL:  # the next lab removes what is left
        with bring_up(parse_layout("flat-3")) as lab:
            assert len(namespaces()) == 4
            assert lab.left_over() == []
    with LOCK.open("w") as lock:  # no other lab is up
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert namespaces() == []
    assert not folder.exists()
    assert has_ended(worker)
