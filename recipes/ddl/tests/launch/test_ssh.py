"""Other hosts by ssh: a real sshd of our own on the loopback, under the names node01 and node02."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddl.launch import ask
from ddl.launch.errors import LaunchError
from ddl.launch.options import Options
from programs import MPI, RANKS, SLEEP, libmpi
from test_run import SHOW, show

from conftest import DDLRUN, Marked, Result

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
SSH = shutil.which("ssh")

TWO_GPUS = "two-gpus"  # a host whose CUDA_VISIBLE_DEVICES names two
# Hosts that answer when they are asked, and refuse the proxy, as an sshd that has too many guests.
REFUSALS = {"silent": "exit 7", "cut": "kill -9 $PPID"}


def resolvable(name: str) -> bool:
    try:
        socket.gethostbyname(name)
    except OSError:
        return False
    return True


pytestmark = [
    pytest.mark.skipif(not SSHD or not SSH, reason="needs sshd and ssh (OpenSSH)"),
    pytest.mark.skipif(
        not resolvable(socket.gethostname()),
        reason="this host's name must be known to others: mpiexec is called back by it",
    ),
]


@pytest.fixture(scope="module")
def path_with_ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PATH whose ssh knows our sshd."""
    folder = tmp_path_factory.mktemp("ssh")
    for key in ("host", "user", TWO_GPUS, *REFUSALS):
        subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", folder / key], check=True)
    with (folder / "user.pub").open("a") as keys:
        for key, words in REFUSALS.items():
            script = f"case $SSH_ORIGINAL_COMMAND in test*) ;; *) {words};; esac"
            keys.write(f'command="{script}" {(folder / f"{key}.pub").read_text()}')
        visible = 'environment="CUDA_VISIBLE_DEVICES=4,7"'
        keys.write(f"{visible} {(folder / f'{TWO_GPUS}.pub').read_text()}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nPasswordAuthentication no\nUsePAM no\n"
        "PermitUserEnvironment CUDA_VISIBLE_DEVICES\n"
        "PermitRootLogin yes\nPidFile none\nMaxStartups 100\n"
    )
    common = "HostName 127.0.0.1\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
    common += "LogLevel ERROR\nIdentitiesOnly yes\n"
    keys = {"node01 node02": "user", **{key: key for key in (TWO_GPUS, *REFUSALS)}}
    (folder / "config").write_text(
        "".join(f"Host {hosts}\nIdentityFile {folder}/{key}\n" for hosts, key in keys.items())
        + f"Host closed\nPort 1\nHost closed {' '.join(keys)}\nPort {port}\n{common}"
    )
    (folder / "bin").mkdir()
    script = folder / "bin" / "ssh"
    script.write_text(f'#!/bin/sh\nexec {SSH} -F {folder}/config "$@"\n')
    script.chmod(0o755)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    server = subprocess.Popen(
        [str(SSHD), "-D", "-e", "-f", folder / "sshd_config"],
        stderr=(folder / "log").open("wb"),
    )
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert server.poll() is None, (folder / "log").read_text()
        time.sleep(0.1)
    yield f"{folder}/bin:{os.environ['PATH']}"
    server.terminate()
    server.wait(20)


@pytest.fixture
def far(ddlrun: Callable[..., Result], path_with_ssh: str) -> Callable[..., Result]:
    return lambda *words, **more: ddlrun(*words, env={"PATH": path_with_ssh}, **more)


def test_ranks_on_other_hosts(far: Callable[..., Result]) -> None:
    strange = "a 'b'\n\"$HOME\" ;`id`"
    names = "RANK LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR A"
    result = far(
        *("-H", "node[01-02]:2", "-x", f"A={strange}"),
        *(sys.executable, "-c", SHOW, names, strange),
    )
    values = show(result)
    assert [value[0]["LOCAL_RANK"] for value in values] == ["0", "1", "0", "1"]
    assert {value[0]["LOCAL_WORLD_SIZE"] for value in values} == {"2"}
    assert {value[0]["MASTER_ADDR"] for value in values} == {"node01"}
    assert {value[0]["A"] for value in values} == {strange}
    assert {tuple(value[1]) for value in values} == {(strange,)}
    assert result.stdout.count("@node01] ") == result.stdout.count("@node02] ") == 2


def test_mpi_between_hosts(far: Callable[..., Result], marked: Marked) -> None:
    command = [sys.executable, "-c", MPI, libmpi(), marked.mark, "print(rank.value)"]
    result = far("-H", "localhost:1,node01:1,node02:1", *command)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        "[0@localhost] 0",
        "[1@node01] 1",
        "[2@node02] 2",
    ]


def test_much_input_for_a_slow_rank_on_another_host(far: Callable[..., Result]) -> None:
    code = "import sys, time; time.sleep(1); print(len(sys.stdin.read()))"
    text = "0123456789\n" * 50000
    result = far("-H", "node01", sys.executable, "-c", code, stdin=text)
    assert (result.returncode, result.stdout) == (0, f"[0@node01] {len(text)}\n"), result.stderr


def test_a_failure_on_another_host(far: Callable[..., Result], marked: Marked) -> None:
    code = "print('oh', file=sys.stderr); os.kill(os.getpid(), signal.SIGSEGV)"
    command = [sys.executable, "-c", RANKS, marked.mark, SLEEP, code]
    result = far("-H", "node01,node02", *command)
    assert result.returncode == 139
    assert "ddlrun: rank 1 on node02 was killed by SIGSEGV (signal 11)" in result.stderr
    assert result.stderr.endswith("ddlrun:   the last lines of rank 1:\nddlrun:     oh\n")
    assert marked.all_gone()


def test_killing_ddlrun_ends_the_ranks_on_other_hosts(path_with_ssh: str, marked: Marked) -> None:
    process = subprocess.Popen(
        [*DDLRUN, "-H", "node01:1,node02:1", sys.executable, "-c", RANKS, marked.mark, SLEEP],
        env=os.environ | {"PATH": path_with_ssh},
        stdin=subprocess.DEVNULL,
    )
    assert marked.wait_until(
        lambda found: sum("rank.py" in words for words in found.values()) >= 2
    ), marked.processes()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert marked.all_gone()


def test_a_lost_host_is_not_the_others_end(far: Callable[..., Result], marked: Marked) -> None:
    """Its ssh ends badly, and nobody minds."""
    kill = "above = open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1]\n"
    kill += "time.sleep(1); os.kill(int(above), signal.SIGKILL); time.sleep(600)"
    command = [sys.executable, "-c", RANKS, marked.mark, "time.sleep(4); say('done')", kill]
    result = far("-keep_going", "-H", "node01,node02", *command)
    assert (result.returncode, result.stdout) == (0, "[0@node01] done\n"), result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("ddlrun: lost rank 1 on node02, which has gone with its host after ")
    assert marked.all_gone()


def test_hosts_that_are_not_checked(far: Callable[..., Result]) -> None:
    """mpiexec's own ssh is the first."""
    result = far("-s", "-np", "2", "-H", "node01,closed", "true")
    assert result.returncode == 1
    assert "ddlrun: could not start rank 1 on closed:" in result.stderr
    assert "Connection refused" in result.stderr


def recording(path: str, folder: Path) -> tuple[str, Path]:
    """The same PATH with an ssh that adds its words to a file; and that file."""
    log, ssh = folder / "log", folder / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$*" >>{log}\nexec {shutil.which("ssh", path=path)} "$@"\n')
    ssh.chmod(0o755)
    return f"{folder}:{path}", log


def test_no_host_is_asked_when_there_is_nothing_to_stage(
    ddlrun: Callable[..., Result], path_with_ssh: str, tmp_path: Path
) -> None:
    path, log = recording(path_with_ssh, tmp_path)
    result = ddlrun("-stage=none.tar.zst", "-H", "localhost,node01", "true", env={"PATH": path})
    assert result.returncode == 2
    assert "none.tar.zst" in result.stderr
    assert not log.exists()


@pytest.mark.parametrize("words", [["true"], ["-show_topology"]])
def test_skipped_checks_are_skipped_where_hosts_are_asked_for_more(
    ddlrun: Callable[..., Result], path_with_ssh: str, tmp_path: Path, words: list[str]
) -> None:
    """For their GPUs, and for their places: the check has an ssh of its own for each host."""
    path, log = recording(path_with_ssh, tmp_path)
    for skip in ((), ("-s",)):
        log.write_text("")
        result = ddlrun(*skip, "-H", "node01,node02", *words, env={"PATH": path})
        assert result.returncode == 0, result.stderr
        asked = log.read_text().splitlines()
        assert asked
        assert any("test -r" in line for line in asked) == (not skip)


def test_hosts_that_cannot_be_reached(far: Callable[..., Result]) -> None:
    result = far("-H", "node01,closed,name.invalid", "true")
    assert result.returncode == 2
    assert result.stderr.startswith("ddlrun: error: cannot use closed: ")
    assert "Connection refused" in result.stderr
    assert "name.invalid: " in result.stderr
    assert "node01: " not in result.stderr
    assert "`ssh HOST true` must work without a password" in result.stderr


def test_a_program_that_other_hosts_do_not_have(far: Callable[..., Result]) -> None:
    result = far("-H", "node01", "no-such-program")
    assert result.returncode == 127
    assert "ddlrun: cannot start no-such-program: No such file or directory" in result.stderr


@pytest.mark.parametrize("host", REFUSALS)
@pytest.mark.parametrize("others", ["", "node01,"])
def test_a_host_that_refuses_the_proxy(
    far: Callable[..., Result], marked: Marked, others: str, host: str
) -> None:
    """mpiexec would wait for it forever."""
    command = [sys.executable, "-c", RANKS, marked.mark, SLEEP, SLEEP]
    result = far("-accelerators", "1", "-H", others + host, *command)
    assert result.returncode == 1
    assert f"ddlrun: could not start rank {others.count(',')} on {host}:\n" in result.stderr
    words = {"silent": "has ended without a word", "cut": "closed by remote host"}
    assert words[host] in result.stderr
    assert marked.all_gone()


def test_ranks_that_end_before_others_begin(far: Callable[..., Result]) -> None:
    """The end of a host's ssh is none too early then."""
    code = "import os, time; time.sleep(4 * (os.environ['RANK'] == '1'))"
    for hosts in ("node01,node02", "node02,node01"):
        result = far("-accelerators", "1", "-H", hosts, sys.executable, "-c", code)
        assert (result.returncode, result.stderr) == (0, "")


def test_ranks_that_end_before_anybody_reads_that_they_began(path_with_ssh: str) -> None:
    """Where output is read slowly, mpiexec has words of ranks long after their ends."""
    program = "[ $RANK = 1 ] || yes | head -c 400000"  # rank 1's first word comes after it
    process = subprocess.Popen(
        [*DDLRUN, "-accelerators", "1", "-H", "localhost,node01", "sh", "-c", program],
        env=os.environ | {"PATH": path_with_ssh},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    time.sleep(4)  # all ranks have ended
    lines = 0
    for _ in range(8):
        lines += os.read(process.stdout.fileno(), 1 << 16).count(b"\n")
        time.sleep(0.5)
    rest, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
    assert lines + rest.count(b"\n") == 200_000


def test_each_host_tells_its_own_gpus(far: Callable[..., Result]) -> None:
    """The ranks' hosts, where nobody says how many ranks: here, there and where two are visible."""
    hosts = f"localhost,node01,{TWO_GPUS}"
    result = far("-H", hosts, "sh", "-c", "echo $LOCAL_RANK: $CUDA_VISIBLE_DEVICES.")
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        "[0@localhost] 0: .",
        "[1@node01] 0: .",
        f"[2@{TWO_GPUS}] 0: 4,7.",
        f"[3@{TWO_GPUS}] 1: 4,7.",
    ]


def test_a_host_that_does_not_tell_its_gpus(
    path_with_ssh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its proxy is refused, and mpiexec waits for it."""
    monkeypatch.setenv("PATH", path_with_ssh)
    monkeypatch.setattr(ask, "SECONDS", 5)
    with pytest.raises(LaunchError) as caught:
        ask.ask_gpus(["node01", "silent"], Options(), os.environ)
    assert caught.value.message.startswith("no answer of the hosts within 5 s: ")
    assert "Where -np or -accelerators says how many ranks" in (caught.value.hint or "")
