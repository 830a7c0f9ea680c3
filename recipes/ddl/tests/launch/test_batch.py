"""What batch systems say in the environment becomes hosts and slots."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ddl.launch.batch import reserved_hosts
from ddl.launch.errors import LaunchError
from ddl.launch.hosts import Host
from ddl.launch.hydra import WRAPPER, gone_hosts
from test_run import SHOW, show

from conftest import Result

LSF = {"LSB_JOBID": "1"}
TASKS = {"SLURM_NTASKS": "14"}


@pytest.mark.parametrize(
    ("environ", "hosts"),
    [
        ({}, []),
        ({**LSF, "LSB_MCPU_HOSTS": "a01n01 42 a01n02 42"}, [("a01n01", None), ("a01n02", None)]),
        ({**LSF, "LSB_MCPU_HOSTS": "{here} 1 a01n01 42"}, [("a01n01", None)]),
        ({**LSF, "LSB_MCPU_HOSTS": "{here} 1 a01n01 1"}, [("{here}", None), ("a01n01", None)]),
        ({"SLURM_JOB_NODELIST": "n[01-02],gpu7"}, [("n01", None), ("n02", None), ("gpu7", None)]),
        (
            {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)"},
            [("n1", None), ("n2", None)],
        ),
        (
            {**TASKS, "SLURM_JOB_NODELIST": "n[1-3],m", "SLURM_TASKS_PER_NODE": "4(x3),2"},
            [("n1", 4), ("n2", 4), ("n3", 4), ("m", 2)],
        ),
        (
            {"LEARNER_NAME_PREFIX": "learner-x", "NUM_LEARNERS": "2", "LEARNER_ID": "1"},
            [("learner-x-1", None), ("learner-x-2", None)],
        ),
    ],
)
def test_reservations(environ: dict[str, str], hosts: list[tuple[str, int | None]]) -> None:
    here = socket.gethostname()
    filled = {name: value.replace("{here}", here) for name, value in environ.items()}
    assert reserved_hosts(filled) == [Host(n.replace("{here}", here), s) for n, s in hosts]


@pytest.mark.parametrize(
    "variable",
    ["PBS_NODEFILE", "HYDRA_HOST_FILE", "OMPI_MCA_orte_default_hostfile", "I_MPI_HYDRA_HOST_FILE"],
)
def test_hostfiles(tmp_path: Path, variable: str) -> None:
    file = tmp_path / "hosts"
    file.write_text("job-worker-0 slots=2\njob-worker-1:2\n")
    assert reserved_hosts({variable: str(file)}) == [
        Host("job-worker-0", 2),
        Host("job-worker-1", 2),
    ]


def test_a_file_of_lsf(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("n1\nn1\nn2\nn2\n")
    assert reserved_hosts({**LSF, "LSB_DJOB_HOSTFILE": str(file)}) == [Host("n1"), Host("n2")]


def test_a_job_of_oar(tmp_path: Path) -> None:
    """A line for each reserved core: cores are no ranks."""
    file = tmp_path / "4924"
    one, two = "idpot-5.grenoble.example", "idpot-8.grenoble.example"
    file.write_text(f"{one}\n{one}\n{two}\n{two}\n")
    environ = {"OAR_JOB_ID": "4924", "OAR_NODEFILE": str(file)}
    assert reserved_hosts(environ) == [Host(one), Host(two)]
    file.write_text(f"{one}\n" * 16)
    assert reserved_hosts(environ) == [Host(one)]
    file.write_text(f"{one}\n-oProxyCommand=reboot\n")
    with pytest.raises(LaunchError, match="line 2: '-oProxyCommand=reboot' is not a host name"):
        reserved_hosts(environ)


def test_oarsh_takes_the_place_of_ssh(ddlrun: Callable[..., Result], tmp_path: Path) -> None:
    """As in OAR's use cases, `mpiexec -launcher ssh -launcher-exec /usr/bin/oarsh`."""
    (tmp_path / "nodes").write_text("idpot-5.example\nidpot-8.example\n")
    oarsh = tmp_path / "bin" / "oarsh"
    oarsh.parent.mkdir()
    environ = {"OAR_NODEFILE": f"{tmp_path}/nodes"}
    environ["PATH"] = f"{oarsh.parent}:{os.environ['PATH']}"
    words = ["-dry-run", "-accelerators", "2", "true"]
    assert "oarsh" not in ddlrun(*words, env=environ).stdout
    oarsh.touch(mode=0o755)
    shown = ddlrun(*words, env=environ)
    assert f"-launcher ssh -launcher-exec {oarsh} " in shown.stdout, shown.stderr
    assert "-hosts idpot-5.example:2,idpot-8.example:2 " in shown.stdout
    shown = ddlrun(*words[:-1], "-H", "other", "true", env=environ)
    assert "-hosts other:2 " in shown.stdout
    assert str(oarsh) not in shown.stdout


# It runs its words here. Options but -x, such as -o, are not all taken by the real one.
OARSH = """#!/bin/sh
[ "$1" = -x ] && shift
case $1 in -*) exit 9 ;; esac
echo "$1" >>"$USED"
shift
exec sh -c "$*"
"""


def test_oarsh_starts_the_ranks(ddlrun: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("node01\nnode01\nnode02\nnode02\n")
    oarsh = tmp_path / "bin" / "oarsh"
    oarsh.parent.mkdir()
    oarsh.write_text(OARSH)
    oarsh.chmod(0o755)
    result = ddlrun(
        *("-accelerators", "2", sys.executable, "-c", SHOW, "RANK LOCAL_RANK NODE_RANK"),
        env={
            "PATH": f"{oarsh.parent}:{os.environ['PATH']}",
            "OAR_NODEFILE": f"{tmp_path}/nodes",
            "USED": f"{tmp_path}/used",
        },
    )
    ranks = [values for values, *_ in show(result)]
    assert [rank["RANK"] for rank in ranks] == ["0", "1", "2", "3"]
    assert [rank["LOCAL_RANK"] for rank in ranks] == ["0", "1", "0", "1"]
    assert [rank["NODE_RANK"] for rank in ranks] == ["0", "0", "1", "1"]
    assert sorted((tmp_path / "used").read_text().split()) == ["node01", "node02"]


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (LSF, "LSF has set neither LSB_MCPU_HOSTS nor LSB_DJOB_HOSTFILE"),
        ({**LSF, "LSB_MCPU_HOSTS": "a 1 b"}, "LSB_MCPU_HOSTS: expected pairs of host and slots"),
        ({**LSF, "LSB_MCPU_HOSTS": "a;reboot 1"}, "LSB_MCPU_HOSTS: 'a;reboot' is not a host name"),
        ({"SLURM_JOB_NODELIST": "n[1-"}, "SLURM_JOB_NODELIST: the bracket in"),
        (
            {**TASKS, "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4(x3)"},
            "is for 3 hosts, but SLURM_JOB_NODELIST names 2",
        ),
        (
            {**TASKS, "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "4(y3)"},
            "SLURM_TASKS_PER_NODE: '4(y3)' is not understood",
        ),
        ({"PBS_NODEFILE": "/nowhere"}, "cannot read the hostfile /nowhere"),
        ({"OAR_NODEFILE": "/nowhere"}, "cannot read the hostfile /nowhere"),
        ({"LEARNER_NAME_PREFIX": "l"}, "NUM_LEARNERS: '' is not a number of learners"),
        (
            {"LEARNER_NAME_PREFIX": "$(x)", "NUM_LEARNERS": "1"},
            "LEARNER_NAME_PREFIX: '$(x)-1' is not a host name",
        ),
    ],
)
def test_what_is_not_understood(environ: dict[str, str], message: str) -> None:
    with pytest.raises(LaunchError) as error:
        reserved_hosts(environ)
    assert message in error.value.message


# As mpiexec's proxy: it has the host's own variables, and gives ranks those of mpiexec's host.
PROXY = "import json, subprocess, sys; subprocess.run(sys.argv[2:], env=json.loads(sys.argv[1]))"


def test_a_host_keeps_what_slurm_says_of_its_place() -> None:
    host = {"SLURM_TOPOLOGY_ADDR": "s0.s4.here", "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.node"}
    head = {
        **dict.fromkeys(host, "of mpiexec's host"),
        **{"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1", "PMI_RANK": "0", "PMI_SIZE": "1"},
        "DDLRUN_GRACE": "2",
        "OTHER": "of mpiexec's host",
    }
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    wrapped = [sys.executable, "-I", "-S", str(WRAPPER), sys.executable, "-c", show]
    shown = subprocess.check_output(
        [sys.executable, "-c", PROXY, json.dumps(head), *wrapped],
        env={**os.environ, **host, "OTHER": "here"},
        text=True,
    )
    assert json.loads(shown).items() >= {**host, "OTHER": "of mpiexec's host"}.items()


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ("srun: error: h2: task 1: Exited with exit code 2", ["h2"]),
        ("srun: error: h[2-3],n7: tasks 1-2,6: Killed", ["h2", "h3", "n7"]),
        ("srun: error: Unable to create step for job 7: Invalid node name", []),
        ("srun: error: h[2-: task 1: Exited with exit code 2", []),
        ("slurmstepd: error: execve(): /x: No such file or directory", []),
    ],
)
def test_hosts_that_srun_has_lost(line: str, hosts: list[str]) -> None:
    assert gone_hosts(line) == hosts
