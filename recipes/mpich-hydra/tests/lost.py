"""`mpiexec -disable-auto-cleanup`: the others go on without a lost proxy and its ranks.

Names of this host stand for several hosts, each with a proxy of its own.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MPIEXEC = shutil.which("mpiexec") or sys.exit("no mpiexec")
HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
WAITS = "while [ -e here ]; do sleep 0.05; done; echo $PMI_RANK done"


@contextmanager
def job(*options: str, before: str = "") -> Iterator[tuple[subprocess.Popen[str], list[int], Path]]:
    """A job of one rank a host, its proxies, and its folder; ranks end when its `here` is gone."""
    says = f"{before}echo $PMI_RANK $PPID; {WAITS}"
    words = [MPIEXEC, *options, "-launcher", "fork", "-hosts", ",".join(HOSTS), "-n", "3"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "here").touch()
        process = subprocess.Popen(
            [*words, "sh", "-c", says],
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
            cwd=folder,
            text=True,
        )
        try:
            lines = dict(process.stdout.readline().split() for _ in HOSTS)
            yield process, [int(lines[str(number)]) for number in range(3)], Path(folder)
        finally:
            process.kill()
            process.wait()


def lose(process: subprocess.Popen[str], proxy: int) -> str:
    """Kill a proxy: mpiexec's line about it."""
    os.kill(proxy, signal.SIGKILL)
    said = []
    while "going on without" not in "".join(said[-1:]):
        said.append(process.stderr.readline())
        assert said[-1], ("nothing is said of it", said, process.wait())
    return said[-1]


def finish(process: subprocess.Popen[str], folder: Path) -> tuple[str, str]:
    (folder / "here").unlink()
    return process.communicate(timeout=20)


def test_the_others_go_on() -> None:
    with job("-disable-auto-cleanup") as (process, proxies, folder):
        line = lose(process, proxies[1])
        assert line.startswith("[mpiexec@"), line
        assert line.endswith("] going on without 127.0.0.2\n"), line
        out, _ = finish(process, folder)
        assert sorted(out.splitlines())[:2] == ["0 done", "2 done"], out
        assert process.returncode != 0


def test_rank_0_is_lost_with_its_input() -> None:
    with job("-disable-auto-cleanup") as (process, proxies, folder):
        process.stdin.write("before\n")
        process.stdin.flush()
        os.kill(proxies[0], signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            for _ in range(10_000):
                process.stdin.write(100 * "x" + "\n")
                process.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdin = None
        out, err = finish(process, folder)
        assert sorted(out.splitlines())[:2] == ["1 done", "2 done"], (out, err)


def test_signals_reach_the_others() -> None:
    trap = "trap 'echo $PMI_RANK told' USR1; "
    with job("-disable-auto-cleanup", before=trap) as (process, proxies, folder):
        lose(process, proxies[1])
        process.send_signal(signal.SIGUSR1)
        told = {process.stdout.readline() for _ in range(2)}
        assert told == {"0 told\n", "2 told\n"}, told
        finish(process, folder)


def test_the_last_proxy_is_lost() -> None:
    with job("-disable-auto-cleanup") as (process, proxies, folder):
        for proxy in proxies:
            lose(process, proxy)
        finish(process, folder)
        assert process.returncode != 0


def test_a_killed_rank_beside_another() -> None:
    words = [MPIEXEC, "-disable-auto-cleanup", "-n", "2", "sh", "-c"]
    kill = "test $PMI_RANK = 0 && kill -9 $$; sleep 1; echo $PMI_RANK done"
    done = subprocess.run([*words, kill], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("1 done\n"), done
    assert done.returncode != 0


def test_without_the_option_the_job_ends() -> None:
    with job() as (process, proxies, _):
        os.kill(proxies[1], signal.SIGKILL)
        _, err = process.communicate(timeout=20)
        assert process.returncode != 0
        assert "the proxy on 127.0.0.2 is gone" in err, err


for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        test()
        print("passed", name)
