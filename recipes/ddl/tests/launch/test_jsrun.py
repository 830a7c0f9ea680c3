"""`ddlrun -launcher jsrun -dry-run`: the command and the ERF, by IBM's documentation of both."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ddl.launch.errors import LaunchError
from ddl.launch.jsrun import show_jsrun
from ddl.launch.options import parse

from conftest import Result

#: A job of two hosts on a cluster with launch nodes.
LSF = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "batch1 1 a01n01 42 a01n02 42"}
PREAMBLE = [
    "cpu_index_using: logical",
    "overlapping_rs: allow",
    "oversubscribe_gpu: allow",
    "launch_distribution: packed",
    "oversubscribe_cpu: error",
]


@pytest.fixture(autouse=True)
def launch_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is `batch1`, as the resolver says on a launch node."""
    import ddl.launch.batch

    monkeypatch.setattr(ddl.launch.batch, "is_local", lambda name: name == "batch1")


def shown(*words: str, environ: dict[str, str] | None = None) -> list[str]:
    options = parse(["-launcher", "jsrun", "-dry-run", *words])
    return show_jsrun(options, LSF if environ is None else environ).splitlines()


def test_each_rank_has_its_cores() -> None:
    lines = shown("-accelerators", "6", "python", "train.py", "a b")
    assert lines[0].endswith("ddlrun has never run with jsrun.")
    assert lines[1:7] == ["cat >ddlrun.erf <<'ERF'", *PREAMBLE]
    ranks = lines[7:19]
    assert ranks[0] == "rank: 0: { host: 1; cpu: {0-27}; gpu: {0-5} }"
    assert ranks[5] == "rank: 5: { host: 1; cpu: {140-167}; gpu: {0-5} }"
    assert ranks[6] == "rank: 6: { host: 2; cpu: {0-27}; gpu: {0-5} }"
    assert ranks[11] == "rank: 11: { host: 2; cpu: {140-167}; gpu: {0-5} }"
    assert lines[19] == "ERF"
    assert lines[20].startswith("jsrun --erf_input ddlrun.erf --env ")
    assert lines[20].endswith(" python train.py 'a b'")
    assert len(lines) == 21


def test_each_rank_has_its_own_gpu_where_it_is_asked_for() -> None:
    lines = shown("-accelerators", "3", "-bind_gpus", "true")
    gpus = [line.rpartition("gpu: ")[2] for line in lines[7:13]]
    assert gpus == 2 * ["{0} }", "{1} }", "{2} }"]


def test_without_binding_ranks_share_all_cores() -> None:
    lines = shown("-accelerators", "2", "-no_bind", "true")
    assert lines[6] == "oversubscribe_cpu: allow"
    assert lines[7:11] == [
        f"rank: {rank}: {{ host: {1 + rank // 2}; cpu: {{0-167}}; gpu: {{0-1}} }}"
        for rank in range(4)
    ]


def test_cores_of_a_rankfile(tmp_path: Path) -> None:
    path = tmp_path / "ranks"
    path.write_text("rank 0=a01n02 slot=0-3,8\nrank 1=a01n01 slot=5\n")
    assert shown("-rankfile", str(path), "true")[7:9] == [
        "rank: 0: { host: 2; cpu: {0-15},{32-35} }",
        "rank: 1: { host: 1; cpu: {20-23} }",
    ]


def test_ranks_get_the_variables_that_ddlrun_gives() -> None:
    words = ["-np", "2", "-ddlarg", "-dbg_level 1", "-x", "A=b c", "true"]
    line = shown(*words)[-1]
    assert " --env 'DDL_OPTIONS=-dbg_level 1' " in line
    assert " --env MASTER_ADDR=a01n01 " in line
    assert " --env 'A=b c' " in line
    assert "DDLRUN" not in line


@pytest.mark.parametrize(
    ("words", "environ", "message"),
    [
        ("true", {}, "-launcher jsrun needs a job of LSF"),
        ("true", {"LSB_JOBID": "7"}, "-launcher jsrun needs a job of LSF"),
        ("true", {**LSF, "LSB_MCPU_HOSTS": "a 1 b"}, "LSB_MCPU_HOSTS: expected pairs"),
        ("true", {**LSF, "LSB_MCPU_HOSTS": "a x"}, "LSB_MCPU_HOSTS: bad number of slots"),
        ("-H a true", LSF, "-launcher jsrun excludes -host and -hostfile"),
        ("true", LSF, "-launcher jsrun cannot ask the hosts how many GPUs they have"),
        ("-accelerators 43 true", LSF, "43 ranks on a01n01, but the job has 42 of its cores"),
    ],
)
def test_what_cannot_be_shown(words: str, environ: dict[str, str], message: str) -> None:
    with pytest.raises(LaunchError) as error:
        shown(*words.split(), environ=environ)
    assert error.value.message.startswith(message)


def test_a_rankfile_with_sockets(tmp_path: Path) -> None:
    path = tmp_path / "ranks"
    path.write_text("rank 0=a01n02 slot=1:0-3\n")
    with pytest.raises(LaunchError, match="an ERF has no sockets, but the rankfile says slot=1:0"):
        shown("-rankfile", str(path), "true")
    path.write_text("rank 0=batch1\n")
    with pytest.raises(LaunchError, match="host batch1 is not among"):
        shown("-rankfile", str(path), "true")


def test_nothing_is_started(ddlrun: Callable[..., Result]) -> None:
    done = ddlrun("-launcher", "jsrun", "true", env=LSF)
    assert done.returncode == 2
    assert done.stderr.startswith("ddlrun: error: -launcher jsrun starts nothing yet")
    done = ddlrun("-launcher", "srun", "true")
    assert done.stderr.startswith("ddlrun: error: -launcher srun: there is no such launcher\n")
    done = ddlrun("-launcher", "hydra", "-H", "localhost:2", "-dry-run", "true")
    assert done.returncode == 0, done.stderr
    assert "mpiexec" in done.stdout


def test_the_text_is_a_shell_script(ddlrun: Callable[..., Result], tmp_path: Path) -> None:
    one_host = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "a01n01 8"}
    done = ddlrun("-launcher", "jsrun", "-dry-run", "-np", "2", "true", "x y", env=one_host)
    assert done.returncode == 0, done.stderr
    (tmp_path / "jsrun").write_text('#!/bin/sh\ncat "$2"\nfor x in "$@"; do echo "<$x>"; done\n')
    (tmp_path / "jsrun").chmod(0o755)
    ran = subprocess.run(
        ["bash", "-c", done.stdout],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert "rank: 1: { host: 1; cpu: {16-31} }\n" in ran.stdout
    assert ran.stdout.endswith("<true>\n<x y>\n")
