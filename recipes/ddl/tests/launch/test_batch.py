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


# -- Flux, SGE, Cobalt, and what nobody here reads ------------------------------------------------

# As flux-getattr(1) and flux-jobs(1) have it.
FLUX = """#!/bin/sh
case "$*" in
  "getattr hostlist") echo "tuo[1001-1002]" ;;
  "jobs -n -o {nodelist} f2CxGa3t") echo "tuo[1001,1004]" ;;
  *) echo "flux: unknown job $5" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def flux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "flux"
    program.parent.mkdir()
    program.write_text(FLUX)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("flux")
def test_a_job_of_flux() -> None:
    batch = {"FLUX_ENCLOSING_ID": "f2CxGa3t", "FLUX_URI": "local:///x"}
    assert reserved_hosts(batch) == [Host("tuo1001"), Host("tuo1002")]
    task = {"FLUX_JOB_ID": "f2CxGa3t", "FLUX_JOB_NNODES": "2"}
    assert reserved_hosts(task) == [Host("tuo1001"), Host("tuo1004")]


@pytest.mark.usefixtures("flux")
@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"FLUX_JOB_ID": "f2CxGa3t", "FLUX_JOB_NNODES": "3"},
            "FLUX_JOB_NNODES is 3, but flux jobs names tuo[1001,1004]",
        ),
        ({"FLUX_JOB_ID": "f9"}, "flux jobs names no hosts: flux: unknown job f9"),
    ],
)
def test_a_job_of_flux_that_is_not_understood(environ: dict[str, str], message: str) -> None:
    with pytest.raises(LaunchError) as error:
        reserved_hosts(environ)
    assert (error.value.message, error.value.hint) == (message, "Name the hosts: -H h1,h2.")


def test_a_job_of_flux_without_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LaunchError, match="job of Flux, but flux is not on PATH"):
        reserved_hosts({"FLUX_JOB_ID": "f1", "FLUX_JOB_NNODES": "2"})


def test_a_job_of_sge(tmp_path: Path) -> None:
    """sge_pe(5): a line for each queue of a host."""
    file = tmp_path / "pe_hostfile"
    file.write_text("n1.x 4 all.q@n1.x UNDEFINED\nn2.x 4 all.q@n2.x <NULL>\nn1.x 2 b.q@n1.x 0,1\n")
    assert reserved_hosts({"PE_HOSTFILE": str(file)}) == [Host("n1.x"), Host("n2.x")]
    file.write_text("-oX 4 all.q@n1 UNDEFINED\n")
    with pytest.raises(LaunchError, match=r"PE_HOSTFILE: .*: '-oX' is not a host name"):
        reserved_hosts({"PE_HOSTFILE": str(file)})
    file.write_text("\n")
    with pytest.raises(LaunchError, match=r"PE_HOSTFILE: .* names no host"):
        reserved_hosts({"PE_HOSTFILE": str(file)})
    with pytest.raises(LaunchError, match="PE_HOSTFILE: cannot read /nowhere: No such file"):
        reserved_hosts({"PE_HOSTFILE": "/nowhere"})


def test_a_job_of_cobalt(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("thetagpu01\nthetagpu02\n")
    environ = {"COBALT_JOBID": "1", "COBALT_NODEFILE": str(file), "COBALT_PARTSIZE": "2"}
    assert reserved_hosts(environ) == [Host("thetagpu01"), Host("thetagpu02")]


@pytest.mark.parametrize(
    ("variable", "two", "one"),
    [
        ("PBS_NUM_NODES", "2", "1"),
        ("COBALT_JOBSIZE", "2", "1"),
        ("LOADL_PROCESSOR_LIST", "a b", "a a"),
        ("PJM_NODE", "2", "1"),
        ("AWS_BATCH_JOB_NUM_NODES", "2", "1"),
        ("AZ_BATCH_NODE_LIST", "10.0.0.4;10.0.0.5", "10.0.0.4"),
        ("AZ_BATCH_HOST_LIST", "10.0.0.4,10.0.0.5", "10.0.0.4"),
        ("SM_HOSTS", '["algo-1", "algo-2"]', '["algo-1"]'),
        ("PET_NNODES", "2", "1"),
        ("VC_WORKER_HOSTS", "j-worker-0.j,j-worker-1.j", "j-worker-0.j"),
    ],
)
def test_hosts_that_nobody_here_reads(variable: str, two: str, one: str) -> None:
    with pytest.raises(LaunchError, match="has reserved 2 hosts") as error:
        reserved_hosts({variable: two})
    assert f"{variable}={two}" in error.value.message
    assert "-H h1,h2" in error.value.hint
    assert reserved_hosts({variable: one}) == []
    assert reserved_hosts({variable: "nonsense"}) == []


def test_with_hosts_on_the_command_line_nobody_is_asked(ddlrun: Callable[..., Result]) -> None:
    environ = {"AWS_BATCH_JOB_NUM_NODES": "2"}
    refused = ddlrun("-dry-run", "true", env=environ)
    assert (refused.returncode, "AWS Batch has reserved 2 hosts" in refused.stderr) == (2, True)
    assert ddlrun("-dry-run", "-H", "localhost", "true", env=environ).returncode == 0
