"""The GPUs by which ranks are counted where nobody says how many: each host's own share."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cgroups import ROOT, cgroup
from ddl.launch.bind import own_gpus
from ddl.launch.errors import LaunchError
from ddl.launch.gpus import gpus_of_hosts
from ddl.launch.hosts import Host
from ddl.launch.layout import make_job
from ddl.launch.options import parse


def counts(environ: dict[str, str], hosts: list[Host], *words: str) -> list[int]:
    return make_job(parse([*words, "true"]), environ, hosts).counts()


@pytest.mark.parametrize(
    ("said", "number"),
    [("0,1", 2), ("", 0), ("-1", 0), ("NoDevFiles", 0), ("0, GPU-8a,MIG-7", 3), ("1,-1,0", 1)],
)
def test_the_gpus_that_are_visible(tmp_path: Path, said: str, number: int) -> None:
    (tmp_path / "dev").mkdir()
    for device in range(8):
        (tmp_path / "dev" / f"nvidia{device}").touch()
    assert own_gpus(said, str(tmp_path)) == number
    assert own_gpus(None, str(tmp_path)) == 8


def test_devices_that_are_no_gpus_or_cannot_be_opened(tmp_path: Path) -> None:
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidia0", "nvidia-uvm", "nvidiactl", "nvidia-caps", "null"):
        (folder / name).touch()
    (folder / "nvidia1").symlink_to("nowhere")
    assert own_gpus(None, str(tmp_path)) == 1
    assert own_gpus(None, str(tmp_path / "none")) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes device files")
def test_a_gpu_that_the_cgroup_forbids(tmp_path: Path) -> None:
    """/dev/null and /dev/zero stand in for two GPUs."""
    (tmp_path / "dev").mkdir()
    for name, minor in (("nvidia0", 3), ("nvidia1", 5)):
        try:
            os.mknod(tmp_path / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        except OSError as error:
            pytest.skip(f"no device files can be made: {error.strerror}")
    if own_gpus(None, str(tmp_path)) != 2:
        pytest.skip("this disk is mounted nodev")
    ask = f"from ddl.launch.bind import own_gpus; print(own_gpus(None, {str(tmp_path)!r}))"
    with cgroup(ROOT / "devices", {"devices.deny": "c 1:5 rwm"}) as folder:  # /dev/zero
        said = subprocess.check_output(
            ["sh", "-c", f'echo $$ >{folder}/cgroup.procs; exec "$0" -c "$1"', sys.executable, ask],
            text=True,
        )
    assert said == "1\n"


def test_ranks_of_this_host_by_what_is_visible() -> None:
    assert counts({"CUDA_VISIBLE_DEVICES": "4,7"}, []) == [2]
    assert counts({"CUDA_VISIBLE_DEVICES": ""}, []) == [1]
    assert counts({"CUDA_VISIBLE_DEVICES": "4,7"}, [], "-x", "CUDA_VISIBLE_DEVICES=1,2,3") == [3]
    assert counts({"CUDA_VISIBLE_DEVICES": "4,7"}, [], "-np", "1") == [1]


# As scontrol(1) of Slurm 22.05 has it, in one line.
SCONTROL = """#!/bin/sh
echo "JobId=7 Nodes=h[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0-1) Nodes=h3 CPU_IDs=0 Mem=0" \\
  "GRES=gpu:a100:4(IDX:0-3) Nodes=h4 CPU_IDs=0 Mem=0 GRES="
"""


def test_slurm_tells_each_hosts_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "scontrol"
    program.write_text(SCONTROL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    hosts = [Host(f"h{number}") for number in (1, 2, 3, 4)]
    environ = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert counts(environ, hosts) == [2, 2, 4, 1]
    assert counts(environ, [Host("h3"), Host("h9")]) == [4, 2]  # of h9 nothing is told
    program.write_text('#!/bin/sh\necho "JobId=7 Nodes=h[1-2] CPU_IDs=0-1 Mem=0 GRES="\n')
    assert counts(environ, hosts[:2]) == [2, 2]


def test_torque_tells_each_hosts_share(tmp_path: Path) -> None:
    file = tmp_path / "7gpu"
    file.write_text("a-node-gpu0\na-node-gpu1\nb-gpu3\n")
    environ = {"PBS_GPUFILE": str(file)}
    assert gpus_of_hosts(["a-node", "b"], environ, {}) == [2, 1]
    assert gpus_of_hosts(["a", "b"], {"PBS_GPUFILE": "/nowhere"}, {}) == [own_gpus(None)] * 2


def test_hosts_named_once_beside_hosts_named_twice(tmp_path: Path) -> None:
    """Each line of PBS_NODEFILE is a rank: here is no place for this host's number of GPUs."""
    from ddl.launch.batch import reserved_hosts

    file = tmp_path / "nodes"
    file.write_text("a\na\nb\n")
    environ = {"PBS_NODEFILE": str(file), "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert counts(environ, reserved_hosts(environ)) == [2, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-mode x true", "-mode x is not understood"),
        ("-topology none.yaml true", "-topology none.yaml: there is no such file"),
        ("-no_ddloptions -mode b true", "-no_ddloptions excludes -mode"),
        ("no-such-program", "the program no-such-program is not found on PATH"),
    ],
)
def test_no_host_is_asked_before_errors_of_the_command_line(words: str, message: str) -> None:
    asked: list[list[str]] = []

    def ask(hosts: list[str]) -> list[int]:
        asked.append(hosts)
        return [1] * len(hosts)

    hosts = ["-H", "localhost,far.invalid"]
    with pytest.raises(LaunchError, match=message):
        make_job(parse([*hosts, *words.split()]), {}, [], ask)
    assert asked == []
    make_job(parse([*hosts, "true"]), {}, [], ask)
    assert asked == [["far.invalid"]]
