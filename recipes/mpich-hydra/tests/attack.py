"""Other users of the host attack a job: it goes on, and they learn nothing.

The "other host" is this one, by a launcher in ssh's place that lets us go first.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

MPIEXEC = shutil.which("mpiexec") or sys.exit("no mpiexec")
SECRET = "only-for-the-job"
# ssh -x HOST COMMAND...: notes its words and the first line of its input, and waits for `go`.
SSH = """#!/bin/sh
shift 2
printf '%s\\n' "$*" > words.new; mv words.new words
IFS= read -r key; printf '%s' "$key" > key
while [ ! -e go ]; do sleep 0.05; done
printf '%s\\n' "$key" | eval "exec $*"
"""


def wait_for(what: Callable[[], T], seconds: float = 20) -> T:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)
    return found


def children(pid: int) -> set[int]:
    """The process and all below it."""
    family = {pid}
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stats[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
    while new := {child for child, parent in stats.items() if parent in family} - family:
        family |= new
    return family


def listeners(pid: int) -> set[str]:
    """The (hexadecimal) addresses that a process and all below it listen on."""
    inodes = set()
    for member in children(pid):
        with contextlib.suppress(OSError):
            for fd in Path(f"/proc/{member}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(str(fd.readlink()))
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                listens = words[3] == "0A" or table.startswith("udp")
                if listens and f"socket:[{words[9]}]" in inodes:
                    found.add(words[1])
    return found


def test_a_job_of_this_host_has_no_port() -> None:
    # Rank 1 has no input that would end.
    command = [MPIEXEC, "-n", "2", "sh", "-c", "echo up; test $PMI_RANK != 0 || read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout.readline() == "up\n"
        assert listeners(job.pid) == set()
        job.communicate("go\n", timeout=20)
    assert job.returncode == 0


def start_far(folder: Path) -> tuple[subprocess.Popen[str], str, int]:
    (folder / "ssh").write_text(SSH)
    (folder / "ssh").chmod(0o755)
    program = "env | sort; while [ ! -e end ]; do sleep 0.05; done; echo done"
    job = subprocess.Popen(
        [
            *(MPIEXEC, "-localhost", "127.0.0.1", "-launcher", "ssh"),
            *("-launcher-exec", str(folder / "ssh"), "-hosts", "elsewhere", "-n", "1"),
            *("sh", "-c", program),
        ],
        cwd=folder,
        env={**os.environ, "SECRET": SECRET},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    words = wait_for(lambda: (folder / "words").exists() and (folder / "words").read_text())
    port = int(words.split("--control-port")[1].split()[0].rpartition(":")[2])
    return job, words, port


def test_strangers_first() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job, words, port = start_far(folder)
        tried = [b"", b"\0" * 12, b"GET / HTTP/1.0\r\n\r\n", b"0" * 32 + b"\0" * 4, b"f" * 4096]
        tried += [b"\0\0\0\0", b"", b"0" * 31] + [b""] * 150
        attacks = []
        for bytes_ in tried:
            attack = socket.create_connection(("127.0.0.1", port), 5)
            with contextlib.suppress(OSError):
                attack.sendall(bytes_)
            attacks.append(attack)
        time.sleep(0.3)
        assert job.poll() is None, job.stdout.read()
        for attack in attacks:
            attack.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                assert attack.recv(100) == b""

        key = wait_for(lambda: (folder / "key").exists() and (folder / "key").read_text())
        assert len(key) == 64
        assert key not in words
        (folder / "go").touch()
        ranks = wait_for(lambda: [p for p in children(job.pid) if rank_runs(p)])
        # All proxies are there: the port is closed, and so are those that waited at it.
        wait_for(lambda: listeners(job.pid) == set())
        for member in children(job.pid):
            cmdline = Path(f"/proc/{member}/cmdline")
            with contextlib.suppress(OSError):
                assert key[:32].encode() not in cmdline.read_bytes()
                assert key[32:].encode() not in cmdline.read_bytes()
            if os.getuid() == 0 and shutil.which("setpriv"):
                read = ["setpriv", "--reuid=65534", "--clear-groups", "cat"]
                seen = subprocess.run(
                    [*read, f"/proc/{member}/environ"], capture_output=True, check=False
                )
                assert seen.returncode != 0, seen.stdout
        assert ranks
        (folder / "end").touch()
        out, _ = job.communicate(timeout=20)
        assert job.returncode == 0, out
        assert out.endswith("done\n"), out
        assert f"SECRET={SECRET}\n" in out  # the rank has its environment
        assert key not in out, "the rank has the key"
        for attack in attacks:
            attack.close()


def rank_runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sh\0-c\0env | sort")
    return False


def test_a_proxy_obeys_its_mpiexec_alone() -> None:
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        proxy = subprocess.Popen(
            [
                *(shutil.which("hydra_pmi_proxy"), "--control-port", f"127.0.0.1:{port}"),
                *("--demux", "poll", "--pgid", "0", "--retries", "0", "--launcher", "ssh"),
                *("--rmk", "user", "--usize", "-2", "--pmi-port", "0", "--gpus-per-proc", "-2"),
                *("--proxy-id", "0"),
            ],
            cwd=name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        proxy.stdin.write(b"a" * 32 + b"b" * 32 + b"\n")
        proxy.stdin.flush()
        server.settimeout(10)
        stream, _ = server.accept()
        with stream:
            stream.settimeout(10)
            assert stream.recv(100) == b"a" * 32 + b"\0" * 4
            stream.sendall(b"c" * 32 + b"\1\0\0\0" + b"\0" * 100)
            out, _ = proxy.communicate(timeout=20)
    assert proxy.returncode != 0
    assert b"is not this job's mpiexec" in out, out


def test_no_port_for_pmi() -> None:
    refused = subprocess.run(
        [MPIEXEC, "-pmi-port", "-n", "1", "true"], capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0
    assert "-pmi-port is refused" in refused.stdout + refused.stderr


def test_rankmap() -> None:
    command = [MPIEXEC, "-hosts", "localhost,127.0.0.1", "-rankmap"]
    show = ["sh", "-c", "echo $PMI_RANK:$MPI_LOCALRANKID"]
    for given, expected in (("1,0,0,1", "0:0 1:0 2:1 3:1"), ("0,1,0,0", "0:0 1:0 2:1 3:2")):
        out = subprocess.check_output([*command, given, "-n", "4", *show], text=True)
        assert " ".join(sorted(out.split())) == expected
    wrong = subprocess.run([*command, "0,2", "-n", "2", "true"], capture_output=True, check=False)
    assert wrong.returncode != 0
    assert b"expected 2 numbers from 0 to 1" in wrong.stdout + wrong.stderr


def test_a_killed_proxy_is_noticed() -> None:
    with subprocess.Popen(
        [MPIEXEC, "-n", "1", "sh", "-c", "echo $PPID; exec sleep 60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as job:
        proxy = int(job.stdout.readline())
        rank = children(proxy) - {proxy}
        os.kill(proxy, 9)
        try:
            assert job.wait(5) != 0
        finally:
            for pid in rank:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)


for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        test()
        print("passed", name)
