"""The step in which srun starts ddlrun's helpers: all of the job's, whatever the settings say.

In a real Slurm with task/affinity, two pretended GPUs and an FPGA a host.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from bench.environment import built
from bench.lab.layout import parse_layout
from bench.lab.network import bring_up
from bench.lab.slurm import Slurm, slurm_in
from integration.lab import needs_slurm

pytestmark = [pytest.mark.built, needs_slurm]

WHO = """
import json, os
names = ("RANK", "CUDA_VISIBLE_DEVICES", "SRUN_CPUS_PER_TASK", "SLURM_CPU_BIND", "SLURM_OVERLAP")
print(json.dumps([sorted(os.sched_getaffinity(0)), {n: os.environ.get(n) for n in names}]))
"""
# By these srun would refuse the step, or keep CPUs, memory, GPUs or output from it.
SETTINGS = """
SLURM_BCAST=/nowhere SLURM_CONSTRAINT=none SLURM_CPU_BIND=cores SLURM_CPUS_PER_GPU=1
SLURM_DEPENDENCY=afterok:1 SLURM_DISTRIBUTION=arbitrary SLURM_EXPORT_ENV=NONE SLURM_GPUS_PER_TASK=9
SLURM_GRES=gpu:9 SLURM_HINT=nomultithread SLURM_IMMEDIATE=1 SLURM_JOB_NUM_NODES=1
SLURM_KILL_BAD_EXIT=1 SLURM_LABELIO=1 SLURM_MEM_BIND=local SLURM_MEM_PER_NODE=99999
SLURM_MPI_TYPE=nonesuch SLURM_NNODES=1 SLURM_NPROCS=1 SLURM_NTASKS_PER_CORE=1
SLURM_NTASKS_PER_NODE=1 SLURM_OVERLAP=0 SLURM_PARTITION=nowhere SLURM_REMOTE_CWD=/nowhere
SLURM_RESV_PORTS=9 SLURM_STDINMODE=none SLURM_STDOUTMODE=none SLURM_STDERRMODE=none
SLURM_STEP_GRES=none SLURM_TASK_PROLOG=/nowhere SLURM_THREADS=1 SLURM_THREADS_PER_CORE=1
SLURM_TIMELIMIT=0:01 SLURM_WAIT=1 SLURM_WORKING_DIR=/nowhere SRUN_CONTAINER=/nowhere
SRUN_CPUS_PER_TASK=1 SRUN_EXPORT_ENV=NONE
"""
TASKS = ("-N2", "--ntasks-per-node=2")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with bring_up(parse_layout("racks-1x2")) as lab, slurm_in(lab) as found:
        (found.folder / "who.py").write_text(WHO)
        (found.folder / "settings").write_text(SETTINGS)
        (found.folder / "wait.py").write_text("import time; time.sleep(3); print('waited')")
        yield found


def run(slurm: Slurm, command: str, *options: str) -> str:
    """What a job that ends well has said."""
    out = slurm.folder / f"out.{time.monotonic_ns()}"
    script = f"#!/bin/bash\nexport PATH={built()}/bin:$PATH\n{command}\n"
    number = slurm.submit(script, "-o", str(out), *options)
    try:
        facts = slurm.wait(number, 60)
    finally:
        slurm.run("scancel", str(number))
    assert facts["JobState"] == "COMPLETED", out.read_text()
    return out.read_text()


def shown(said: str) -> list[tuple[list[int], dict[str, str | None]]]:
    """Each rank's CPUs and variables."""
    lines = [line.partition("] ")[2] for line in said.splitlines() if "@h" in line]
    found = sorted((json.loads(line) for line in lines), key=lambda one: int(one[1]["RANK"]))
    return [(cpus, variables) for cpus, variables in found]


def first_of(command: str) -> str:
    """The command in the first of a step's tasks, while the others wait for the step's end."""
    return f"bash -c 'if [ $SLURM_PROCID = 0 ]; then {command}; fi'"


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ((), "ddlrun python who.py"),
        (("--cpus-per-task=1",), "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK ddlrun python who.py"),
        (("--hint=nomultithread",), "ddlrun python who.py"),
        (("--threads-per-core=1",), "ddlrun python who.py"),
        ((), "SLURM_CPU_BIND=map_cpu:0 ddlrun python who.py"),
        ((), "SLURM_EXACT=1 SLURM_CPU_BIND=cores ddlrun python who.py"),
        ((), "SLURM_LABELIO=1 SLURM_STDOUTMODE=none SLURM_TIMELIMIT=0:01 ddlrun python who.py"),
        ((), "export $(<settings); ddlrun python who.py"),
        (
            ("--cpus-per-task=1",),
            "srun --overlap -N2 -n2 -c1 --cpu-bind=cores "
            + first_of("ddlrun -accelerators 2 python who.py"),
        ),
    ],
)
def test_ranks_share_all_cpus_of_their_host(
    slurm: Slurm, options: tuple[str, ...], command: str
) -> None:
    ranks = shown(run(slurm, command, *TASKS, *options))
    assert [cpus for cpus, _ in ranks] == [[0], [1], [0], [1]]
    assert all(variables["SLURM_OVERLAP"] in (None, "0") for _, variables in ranks)


def test_ranks_keep_the_user_s_settings(slurm: Slurm) -> None:
    command = "export SRUN_CPUS_PER_TASK=1 SLURM_CPU_BIND=cores; ddlrun python who.py"
    for _, variables in shown(run(slurm, command, *TASKS)):
        assert (variables["SRUN_CPUS_PER_TASK"], variables["SLURM_CPU_BIND"]) == ("1", "cores")


@pytest.mark.parametrize(
    "options",
    [("--gpus-per-task=1",), ("--gpus-per-node=2", "--gpu-bind=single:1"), ("--gres=gpu:2",)],
)
def test_ranks_see_all_gpus_of_their_host(slurm: Slurm, options: tuple[str, ...]) -> None:
    ranks = shown(run(slurm, "ddlrun python who.py", *TASKS, *options))
    assert [variables["CUDA_VISIBLE_DEVICES"] for _, variables in ranks] == ["0,1"] * 4


@pytest.mark.parametrize(
    ("options", "resources"),
    [
        (("--gres=gpu:2,fpga:1",), {"gpu:2", "fpga:1"}),
        (("--gpus-per-task=1", "--gres=fpga:1"), {"gpu:2", "fpga:1"}),
        (("--gres=fpga:1",), {"fpga:1"}),
    ],
)
def test_the_step_has_all_generic_resources(
    slurm: Slurm, options: tuple[str, ...], resources: set[str]
) -> None:
    steps = "scontrol show step --oneliner $SLURM_JOB_ID | grep Name=hydra_pmi_proxy"
    said = run(slurm, f"ddlrun -accelerators 1 sh -c '{steps}'", *TASKS, *options)
    (asked, _) = re.findall(r"TresPerNode=(\S+)", said)
    assert {name.removeprefix("gres:") for name in asked.split(",")} == resources


def test_memory_is_the_job_s(slurm: Slurm) -> None:
    """A step with a size of its own would wait for memory, or be killed at that size."""
    said = run(slurm, "SLURM_MEM_PER_CPU=900 ddlrun python who.py", *TASKS, "--mem=600")
    assert len(shown(said)) == 4


def test_a_step_that_waits_does_not_hold_ddlrun_up(slurm: Slurm) -> None:
    ddlrun = "timeout 20 ddlrun -accelerators 2 python wait.py"
    said = run(slurm, f"srun -N2 -n2 --ntasks-per-node=1 {first_of(ddlrun)}", *TASKS)
    assert said.count("waited") == 4


def test_two_jobs_of_ddlrun_share_an_allocation(slurm: Slurm) -> None:
    one = "ddlrun python wait.py; date +%s.%N"
    said = run(slurm, f"({one}) & ({one}) & wait", *TASKS)
    first, second = [float(line) for line in said.splitlines() if "waited" not in line]
    assert said.count("waited") == 8
    assert abs(second - first) < 3  # neither has waited for the other's three seconds


def test_a_step_that_slurm_refuses_is_said_at_once(slurm: Slurm) -> None:
    """mpiexec would wait for the proxies that srun does not start."""
    command = "SLURM_JOB_ID=99 SLURM_JOBID=99 timeout 30 ddlrun -np 4 python who.py; echo status $?"
    said = run(slurm, command, *TASKS)
    assert "ddlrun: could not start rank 0 on h0, rank 1 on h0, rank 2 on h1, rank 3 on h1:" in said
    assert "srun: error: Unable to" in said
    assert said.endswith("status 1\n")


@pytest.mark.parametrize("inside", [True, False])
def test_a_shell_that_is_attached_to_the_job(slurm: Slurm, inside: bool) -> None:
    """By srun in the job's script, or in another terminal, where the job's variables are not."""
    ddlrun = f"{built()}/bin/ddlrun"
    python = f"{built()}/bin/python who.py"
    shell = f"'{ddlrun} -accelerators 2 {python}; {ddlrun} -H h0:2,h1:2 {python}'"
    if inside:
        said = run(slurm, f"srun --overlap -N1 -n1 bash -c {shell}", *TASKS)
    else:
        number = slurm.submit("#!/bin/bash\nsleep 60\n", *TASKS, "-o", "/dev/null")
        slurm.until(lambda: slurm.job(number)["JobState"] == "RUNNING", 30, "the job")
        attach = f"srun --jobid={number} --overlap -N1 -n1 bash -c {shell}"
        try:
            done = slurm.run("bash", "-c", attach)
        finally:
            slurm.run("scancel", str(number))
        assert done.returncode == 0, done.stderr
        said = done.stdout
    assert [cpus for cpus, _ in shown(said)] == [[0], [0], [1], [1]] * 2
