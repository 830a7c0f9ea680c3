"""Every launcher's variables tell a rank the same, whatever ddlrun itself was started by."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ddl.launch.batch import SSH, Starter, starter
from ddl.launch.variables import decode_nodes, encode_nodes, identify, without_foreign
from test_run import SHOW, show

from conftest import Result

Run = Callable[..., Result]

# What sbatch and slurmstepd give to the batch step of a job with one task on each of two nodes.
BATCH_STEP = {
    **{"SLURM_JOB_ID": "17", "SLURM_JOBID": "17", "SLURM_JOB_NAME": "train.sh"},
    **{"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2"},
    **{"SLURM_NTASKS": "2", "SLURM_NPROCS": "2", "SLURM_NTASKS_PER_NODE": "1"},
    **{"SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_NNODES": "2", "SLURM_PROCID": "0"},
    **{"SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_GTIDS": "0", "SLURM_TASK_PID": "99"},
}
OTHERS = {
    **{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_NODE_RANK": "0", "PMIX_RANK": "0"},
    **{"MV2_COMM_WORLD_RANK": "0", "JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "1"},
    **{"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_USE_AGENT_STORE": "True", "GROUP_RANK": "5"},
    **{"HOROVOD_RANK": "0", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "a"},
    **{"RANK": "0", "WORLD_SIZE": "1", "NODE_RANK": "3", "PALS_RANKID": "0"},
}


def of_ranks(ddlrun: Run, env: dict[str, str], *words: str) -> list[dict[str, str]]:
    """The variables of each rank that are set."""
    names = {*BATCH_STEP, *OTHERS, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"}
    names |= {"SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"}
    names |= {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "HOROVOD_GLOO_IFACE"}
    result = ddlrun(*words, sys.executable, "-c", SHOW, " ".join(names), env=env)
    return [
        {name: value for name, value in values[0].items() if value is not None}
        for values in show(result)
    ]


def test_ranks_in_a_batch_step_of_slurm(ddlrun: Run) -> None:
    """Lightning goes by SLURM_PROCID, SLURM_LOCALID, SLURM_NODEID and SLURM_NTASKS."""
    ranks = of_ranks(ddlrun, BATCH_STEP, "-H", "localhost:2,127.0.0.1:2")
    assert [rank["SLURM_PROCID"] for rank in ranks] == ["0", "1", "2", "3"]
    assert [rank["SLURM_LOCALID"] for rank in ranks] == ["0", "1", "0", "1"]
    assert [rank["SLURM_NODEID"] for rank in ranks] == ["0", "0", "1", "1"]
    assert [rank["SLURM_GTIDS"] for rank in ranks] == ["0,1", "0,1", "2,3", "2,3"]
    for rank in ranks:
        assert rank["SLURM_NTASKS"] == rank["SLURM_NPROCS"] == rank["SLURM_STEP_NUM_TASKS"] == "4"
        assert rank["SLURM_NTASKS_PER_NODE"] == "2"
        assert rank["SLURM_TASKS_PER_NODE"] == "2(x2)"
        assert rank["SLURM_NNODES"] == "2"
        assert rank["SLURM_STEP_NODELIST"] == "localhost,127.0.0.1"
        assert rank["SLURM_JOB_NODELIST"] == "n[1-2]"  # the job's stays
        assert "SLURM_TASK_PID" not in rank


def test_ranks_below_another_launcher(ddlrun: Run) -> None:
    ranks = of_ranks(ddlrun, OTHERS | {"HOROVOD_GLOO_IFACE": "lo"}, "-np", "2")
    for number, rank in enumerate(map(dict, ranks)):
        for name in ("RANK", "LOCAL_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"):
            assert rank.pop(name) == str(number)
        for name in ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK"):
            assert rank.pop(name) == str(number)
        for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"):
            assert rank.pop(name) == "2"
        assert rank.pop("OMPI_COMM_WORLD_LOCAL_SIZE") == "2"
        assert rank.pop("NODE_RANK") == rank.pop("GROUP_RANK") == "0"
        assert rank == {"HOROVOD_GLOO_IFACE": "lo"}  # a setting, not an identity


def test_a_variable_that_the_user_gives_to_ranks_stays(ddlrun: Run) -> None:
    ranks = of_ranks(ddlrun, {}, "-x", "MV2_COMM_WORLD_RANK=8", "-x", "SLURM_TASK_PID=1")
    assert ranks[0]["MV2_COMM_WORLD_RANK"] == "8"
    assert ranks[0]["SLURM_TASK_PID"] == "1"
    assert "SLURM_PROCID" not in ranks[0]  # there is no Slurm


def test_hosts_with_different_numbers_of_ranks() -> None:
    """Slurm then says nothing of tasks per node."""
    environ = {"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    environ["SLURM_JOB_ID"] = "1"
    identify(environ, [0, 1, 0], "a,b", [])
    assert environ["SLURM_TASKS_PER_NODE"] == "2,1"
    assert "SLURM_NTASKS_PER_NODE" not in environ
    assert (environ["SLURM_NODEID"], environ["SLURM_GTIDS"]) == ("0", "0,2")


def test_nodes_in_short() -> None:
    for nodes in ([0], [0, 0, 1, 1], [0, 1, 0, 1], [2, 2, 0]):
        assert decode_nodes(encode_nodes(tuple(nodes))) == nodes


def test_hydra_does_not_see_anothers_host_file(ddlrun: Run) -> None:
    assert without_foreign({"HYDRA_HOST_FILE": "/nowhere", "HYDRA_IFACE": "lo"}) == {
        "HYDRA_IFACE": "lo"
    }


@pytest.mark.parametrize(
    "left_over",
    [
        {"LSB_JOBID": "1"},
        {"PBS_NODEFILE": "/nowhere"},
        {"OAR_NODEFILE": "/nowhere"},
        {"HYDRA_HOST_FILE": "/nowhere"},
        {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-", "SLURM_NTASKS": "2"},
        {"LEARNER_NAME_PREFIX": "$(x)"},
        {"OMPI_MCA_orte_default_hostfile": "/nowhere"},
    ],
    ids=lambda left_over: next(iter(left_over)),
)
def test_what_is_left_of_a_job_that_is_gone(ddlrun: Run, left_over: dict[str, str]) -> None:
    """A shell in which it was set, or a container: who names the hosts needs no batch system."""
    result = ddlrun("-H", "localhost:2", "true", env=left_over)
    assert (result.returncode, result.stderr) == (0, "")


def test_only_reserved_hosts_are_started_by_the_batch_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("srun", "blaunch", "oarsh"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    slurm = {"SLURM_JOB_NODELIST": "n[1-2]"}
    assert starter(slurm, ["n1", "n2.cluster"]) == Starter("slurm", "srun")
    assert starter(slurm, ["n1", "n3"]) == SSH
    assert starter({"LSB_JOBID": "1"}, ["n1"]) == SSH
    lsf = {"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "n1 4"}
    assert starter(lsf, ["localhost", "n1"]) == Starter("lsf", "blaunch")
    (tmp_path / "nodes").write_text("n1.cluster\nn1.cluster\nn2.cluster\n")
    oar = {"OAR_NODEFILE": f"{tmp_path}/nodes"}
    assert starter(oar, ["n1", "n2"]) == Starter("ssh", "oarsh")
    assert starter(oar, ["n3"]) == SSH
    assert starter({}, ["n1"]) == SSH


def test_the_timeline_goes_to_the_ranks_as_an_absolute_path(ddlrun: Run, tmp_path: Path) -> None:
    words = ("-np", "2", "-timeline", "a b.json", sys.executable, "-c", SHOW, "DDL_TIMELINE")
    values = [rank[0]["DDL_TIMELINE"] for rank in show(ddlrun(*words))]
    assert values == [str(tmp_path / "a b.json")] * 2
