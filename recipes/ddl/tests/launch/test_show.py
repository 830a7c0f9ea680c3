"""`ddlrun -show_topology` asks the hosts where they stand, and shows what the library makes of it.

The hosts are this one under four names: an `ssh` of ours starts what it is told to here, and says
another place each time.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Result

DDLRUN = Path(sys.executable).with_name("ddlrun")
HOSTS = "node[01-04]"
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do
  [ "$1" = -o ] && shift
  shift
done
case $1 in
  node01 | node03) DDL_PLACE=row/r1 ;;
  node02) DDL_PLACE=row/r0 ;;
  node04) DDL_PLACE=$FOURTH ;;
  *) echo "ssh: $1 is unknown" >&2; exit 255 ;;
esac
export DDL_PLACE CUDA_VISIBLE_DEVICES=$GPUS
shift
exec sh -c "$*"
"""

pytestmark = pytest.mark.skipif(not DDLRUN.is_file(), reason="needs the installed library")
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The installed ddlrun, with our ssh."""
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)

    def start(*words: str, fourth: str = "row/r0", **variables: str) -> Result:
        path = f"{ssh.parent}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "FOURTH": fourth, "GPUS": ""}
        for name in ("PYTHONPATH", "DDL_PLACE", "DDL_OPTIONS"):
            env.pop(name, None)
        return subprocess.run(
            [str(DDLRUN), *words],
            env=env | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return start


def groups(text: str, host: str) -> list[set[str]]:
    """The hosts of each line of a printed tree, by their numbers from 0."""
    lines = [re.findall(host, line) for line in text.splitlines()]
    return sorted(({*line} for line in lines if line), key=sorted)


def test_the_tree_is_that_of_a_job(run: Run) -> None:
    shown = run("-show_topology", "-H", HOSTS)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("4 hosts with 1 rank each, grouped as they say themselves\n")
    assert groups(shown.stdout, r"node0(\d)") == [{"1", "3"}, {"2", "4"}]
    # In a job of the library, which takes each rank for a host.
    code = "import ddl; ddl.init()"
    words = ["-H", HOSTS, "-ddlarg", "-dbg_level 1", sys.executable, "-c", code]
    job = run(*words, DDL_FAKE_HOSTS="4")
    assert job.returncode == 0, job.stderr
    words = re.findall(r"\[ddl\] +(?:\S+/)?(\S+)$", job.stderr, re.M)
    assert " ".join(words) == "row r1 0 2 r0 1 3", job.stderr


def test_a_mode_comes_first(run: Run) -> None:
    shown = run("-show_topology", "-H", HOSTS, "-mode", "p:1x4")
    assert shown.stdout.startswith("4 hosts with 1 rank each, side by side by -mode p:1x4\n")
    shown = run("-show_topology", "-H", HOSTS, "-mode", "p:1x2x2")
    assert shown.stdout.startswith("4 hosts with 1 rank each, grouped as in -mode p:1x2x2\n")
    assert groups(shown.stdout, r"node0(\d)") == [{"1", "2"}, {"3", "4"}]


def test_a_wrong_place_is_the_error_that_a_job_would_have(run: Run) -> None:
    shown = run("-show_topology", "-H", HOSTS, fourth="row//r0")
    assert shown.returncode == 2
    assert "host node04 says that its place is 'row//r0'" in shown.stderr


def test_hosts_that_do_not_answer(run: Run) -> None:
    shown = run("-show_topology", "-H", "node01,other")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("2 hosts with 1 rank each, side by side as far as is known\n")
    assert shown.stdout.splitlines()[-2:] == [
        "Where the hosts say that they stand is not known, and may change this:",
        "cannot use other: ssh: other is unknown",
    ]


def test_ranks_by_the_hosts_gpus(run: Run) -> None:
    """They are asked, as by a job: this host has none."""
    shown = run("-show_topology", "-H", HOSTS, GPUS="2,3,5")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("4 hosts with 3 ranks each, grouped as they say themselves\n")
