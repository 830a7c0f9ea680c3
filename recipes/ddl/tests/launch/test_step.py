"""The variables of the step in which a batch system starts mpiexec's proxies."""

import gzip
import re
from pathlib import Path

import pytest
from ddl.launch.batch import reserved_hosts
from ddl.launch.hosts import Host
from ddl.launch.scontrol import gres_per_host, own_job
from ddl.launch.step import give_back, is_setting_of_srun, step_environment

# Every variable that srun(1) of Slurm 22.05 and 24.11 takes as its input.
TAKEN = """
    SLURM_ACCOUNT SLURM_BCAST SLURM_BCAST_EXCLUDE SLURM_BURST_BUFFER SLURM_CLUSTERS SLURM_COMPRESS
    SLURM_CONSTRAINT SLURM_CORE_SPEC SLURM_CPU_BIND SLURM_CPUS_PER_GPU SLURM_DEBUG
    SLURM_DEBUG_FLAGS SLURM_DELAY_BOOT SLURM_DEPENDENCY SLURM_DISABLE_STATUS SLURM_DIST_PLANESIZE
    SLURM_DISTRIBUTION SLURM_EPILOG SLURM_EXACT SLURM_EXCLUSIVE SLURM_EXIT_ERROR
    SLURM_EXIT_IMMEDIATE SLURM_EXPORT_ENV SLURM_GPU_BIND SLURM_GPUS SLURM_GPUS_PER_NODE
    SLURM_GPUS_PER_TASK SLURM_GRES SLURM_GRES_FLAGS SLURM_HINT SLURM_IMMEDIATE SLURM_JOB_NAME
    SLURM_JOB_NUM_NODES SLURM_KILL_BAD_EXIT SLURM_LABELIO SLURM_MEM_BIND SLURM_MEM_PER_CPU
    SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE SLURM_MPI_TYPE SLURM_NNODES SLURM_NO_KILL SLURM_NPROCS
    SLURM_NTASKS SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_NODE
    SLURM_NTASKS_PER_SOCKET SLURM_OPEN_MODE SLURM_OVERCOMMIT SLURM_OVERLAP SLURM_PARTITION
    SLURM_PMI_KVS_NO_DUP_KEYS SLURM_PROLOG SLURM_QOS SLURM_REMOTE_CWD SLURM_REQ_SWITCH
    SLURM_RESERVATION SLURM_RESV_PORTS SLURM_SEND_LIBS SLURM_SIGNAL SLURM_SPREAD_JOB
    SLURM_SRUN_REDUCE_TASK_EXIT_MSG SLURM_STDERRMODE SLURM_STDINMODE SLURM_STDOUTMODE
    SLURM_STEP_GRES SLURM_STEP_KILLED_MSG_NODE_ID SLURM_TASK_EPILOG SLURM_TASK_PROLOG
    SLURM_TEST_EXEC SLURM_THREAD_SPEC SLURM_THREADS SLURM_THREADS_PER_CORE SLURM_TIMELIMIT
    SLURM_UMASK SLURM_UNBUFFEREDIO SLURM_USE_MIN_NODES SLURM_WAIT SLURM_WAIT4SWITCH
    SLURM_WORKING_DIR SLURMD_DEBUG SRUN_CONTAINER SRUN_CPUS_PER_TASK SRUN_EXPORT_ENV
    SLURM_CONSOLIDATE_SEGMENTS SLURM_CPUS_PER_TASK SLURM_SEGMENT_SIZE SLURM_TRES_BIND
    SLURM_TRES_PER_TASK SRUN_CONTAINER_ID SRUN_ERROR SRUN_INPUT SRUN_OUTPUT
"""
KEPT = """
    SLURM_ACCTG_FREQ SLURM_CONF SLURM_CPU_FREQ_REQ SLURM_GPU_FREQ SLURM_JOB_ID SLURM_NETWORK
    SLURM_POWER SLURM_PROFILE SLURM_WCKEY
    PMI_FANOUT PMI_FANOUT_OFF_HOST PMI_TIME
"""
MANUAL = Path("/usr/share/man/man1/srun.1.gz")


@pytest.mark.parametrize("name", TAKEN.split())
def test_a_setting_of_the_user_s_is_none_of_our_step_s(name: str) -> None:
    assert is_setting_of_srun(name)
    environ = {name: "7", "SLURM_JOB_ID": "1"}
    environment = step_environment("slurm", environ, {})
    assert environment.get(name) in (None, "0", "1", "none")
    give_back(environment)
    assert environment == environ


@pytest.mark.parametrize("name", KEPT.split())
def test_what_says_which_job_and_how_its_hosts_run_stays(name: str) -> None:
    assert step_environment("slurm", {name: "7"}, {})[name] == "7"


@pytest.mark.skipif(not MANUAL.exists(), reason="srun's manual is not there")
def test_the_table_has_all_of_the_manual() -> None:
    text = gzip.decompress(MANUAL.read_bytes()).decode(errors="replace").replace("\\", "")
    text = text[text.index("INPUT ENVIRONMENT") : text.index("OUTPUT ENVIRONMENT")]
    names = set(re.findall(r"^fB((?:SLURMD?|SRUN|SBATCH|PMI)_[A-Z0-9_]+)", text, re.M))
    assert len(names) > 90
    assert names <= {*TAKEN.split(), *KEPT.split()}


@pytest.mark.parametrize("starter", ["slurm", "lsf", "ssh"])
def test_a_rank_has_the_user_s_variables(starter: str) -> None:
    environ = {"SLURM_OVERLAP": "0", "LSB_DJOB_TASK_BIND": "Y", "SLURM_X": "", "HOME": "/h"}
    environment = step_environment(starter, environ, {"gpu": 2, "fpga": 1})
    expected = "gpu:2,fpga:1" if starter == "slurm" else None
    assert environment.get("SLURM_GRES") == expected
    assert environment["LSB_DJOB_TASK_BIND"] == ("N" if starter == "lsf" else "Y")
    give_back(environment)
    assert environment == environ


@pytest.mark.parametrize("starter", ["slurm", "lsf", "ssh"])
def test_a_job_that_may_lose_hosts(starter: str) -> None:
    environ = {"SLURM_NO_KILL": "off", "HYDRA_LAUNCHER_EXTRA_ARGS": "-p 2222", "SLURM_JOB_ID": "1"}
    environment = step_environment(starter, environ, {}, may_lose_hosts=True)
    assert environment.get("SLURM_NO_KILL") == {"slurm": "set"}.get(starter, "off")
    extra = environment["HYDRA_LAUNCHER_EXTRA_ARGS"]
    assert extra.startswith("-p 2222")
    assert ("ServerAliveInterval=" in extra) == (starter == "ssh")
    give_back(environment)
    assert environment == environ


@pytest.mark.parametrize(
    ("gres", "each"),
    [
        ("JOB_GRES=gpu:4 Nodes=h[0-1] CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)", {"gpu": 2}),
        ("Nodes=h0 GRES=gpu:2(IDX:0-1)  Nodes=h1 GRES=gpu:1(IDX:0)", {"gpu": 1}),
        (
            "Nodes=h0 GRES=gpu:2080:2(IDX:0,3),gpu:1g.5gb:1(IDX:2),fpga(CNT:3)",
            {"gpu": 3, "fpga": 3},
        ),
        ("Nodes=h0 GRES=gpu:a:2,gpu:b:1,fpga:x(CNT:1),fpga:y(CNT:2)", {"gpu": 3, "fpga": 3}),
        ("Nodes=h0 GRES=gpu:2(IDX:0-1),fpga(CNT:1)  Nodes=h1 GRES=fpga(CNT:2)", {"fpga": 1}),
        ("JOB_GRES=(null) Nodes=h[0-1] GRES=", {}),
        ("Nodes=h0 GRES=gpuless:3(IDX:0)", {"gpuless": 3}),
        ("Nodes=h0 GRES=lustre(CNT:5G)", {}),
        ("", {}),
    ],
)
def test_the_generic_resources_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gres: str, each: dict[str, int]
) -> None:
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\n[ \"$5\" = 7_3 ] && echo 'JobId=9 {gres}'\necho JobId=10\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    task = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_ID": "9"}
    assert gres_per_host(task, 10) == each
    assert gres_per_host({}, 10) == {}
    program.write_text("#!/bin/sh\necho no such job >&2; exit 1\n")
    assert gres_per_host(task, 10) == {}


def test_a_task_of_an_array_has_a_name_of_its_own() -> None:
    """The number of one of the tasks is that of the array, too."""
    assert own_job({"SLURM_JOB_ID": "7"}) == "7"
    task = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "7"}
    assert own_job(task) == "7_0"


def test_the_hosts_of_a_job_in_a_step_on_some_of_them() -> None:
    step = {
        **{"SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "h0", "SLURM_NODELIST": "h[0-1]"},
        **{"SLURM_TASKS_PER_NODE": "1", "SLURM_NTASKS": "1"},
    }
    assert reserved_hosts(step) == [Host("h0"), Host("h1")]
    inside = {**step, "SLURM_JOB_NODELIST": "h[0-1]", "SLURM_NTASKS_PER_NODE": "2"}
    assert reserved_hosts(inside) == [Host("h0", 2), Host("h1", 2)]
