"""Programs that name another backend, or none: what they get, and what they hear."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rank_cases import Run

ASKED = {"DDL_INSTEAD_OF": "gloo,nccl"}

# A group is ddl's if its backend says so itself, whatever torch calls it.
USE = """
import torch, torch.distributed as dist
def is_ours(group=None):
    group = group or dist.group.WORLD
    return group._get_backend(torch.device("cpu")).name() == "ddl"
def works(group=None):
    tensor = torch.ones(5)
    dist.all_reduce(tensor, group=group)
    dist.barrier(group=group)
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, "x", group=group)
    return tensor[0] == dist.get_world_size() and found == ["x"] * len(found)
"""
END = "\nassert is_ours() and works()\ndist.destroy_process_group()\n"


def checked(ddlrun: Run, code: str, env: dict[str, str] | None = None, ranks: int = 2) -> str:
    """Run it; its stderr."""
    result = ddlrun(ranks, code=USE + code, env=env)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stderr


# -- a program that names none ------------------------------------------------------------------


def test_a_job_of_ddlrun_uses_ddl_where_none_is_named(ddlrun: Run) -> None:
    code = "dist.init_process_group()\nassert dist.get_backend() == 'ddl'\n"
    code += "assert is_ours(dist.new_group())\n"
    assert checked(ddlrun, code + END) == ""


def test_the_default_of_a_device_is_ddl_in_a_job_of_ddlrun(ddlrun: Run) -> None:
    code = "backend = dist.get_default_backend_for_device(torch.device('cpu'))\n"
    code += "assert backend == 'ddl' == dist.get_default_backend_for_device('cpu')\n"
    assert checked(ddlrun, code + "dist.init_process_group(backend)" + END) == ""


def test_a_mesh_of_a_program_without_a_group_is_ddls(ddlrun: Run) -> None:
    code = "from torch.distributed.device_mesh import init_device_mesh\n"
    code += "mesh = init_device_mesh('cpu', (dist.get_world_size() if 0 else 2,))\n"
    checked(ddlrun, code + "assert is_ours(mesh.get_group())" + END)


def test_a_program_may_still_ask_for_gloo(ddlrun: Run) -> None:
    code = "dist.init_process_group('gloo')\nassert not is_ours() and works()\n"
    assert checked(ddlrun, code + "assert dist.get_backend() == 'gloo'\n") == ""


def test_without_a_launcher_nothing_changes() -> None:
    code = (
        "import torch.distributed as dist\n"
        "assert dist.get_default_backend_for_device('cpu') == 'gloo'\n"
        "assert not dist.is_nccl_available() or __import__('torch').version.cuda\n"
    )
    env = {n: v for n, v in os.environ.items() if not n.startswith("DDL")}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, env=env)


# -- a program that names another ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["nccl", "gloo", "NCCL", "cpu:gloo,cuda:nccl", "cpu:gloo"])
def test_a_replaced_name_gives_ddl_and_is_heard(ddlrun: Run, name: str) -> None:
    code = f"dist.init_process_group('{name}')\nassert dist.get_backend() == '{name.lower()}'\n"
    code += "group = dist.new_group([0, 1])\nassert is_ours(group) and works(group)\n"
    code += "assert dist.get_backend(group) == dist.get_backend()\n"
    code += "dist.monitored_barrier()\n"
    told = checked(ddlrun, code + END, ASKED)
    assert told == f"[0@localhost] [ddl] serves as backend {name.lower()} (DDL_INSTEAD_OF)\n"


def test_groups_and_meshes_of_a_replaced_name(ddlrun: Run) -> None:
    code = (
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "mesh = init_device_mesh('cpu', (2, 1), mesh_dim_names=('a', 'b'))\n"
        "assert is_ours(mesh.get_group('a')) and works(mesh.get_group('a'))\n"
        "for name in ('gloo', 'nccl', 'cpu:gloo,cuda:nccl', 'ddl', None):\n"
        "    group = dist.new_group(backend=name)\n"
        "    assert is_ours(group) and works(group)\n"
        "    assert name is None or dist.get_backend(group) == name\n"
    )
    checked(ddlrun, code + END, ASKED)


def test_what_is_available_is_what_ddl_stands_for(ddlrun: Run) -> None:
    code = (
        "assert dist.is_nccl_available() and dist.is_gloo_available()\n"
        "assert dist.is_backend_available('nccl') and dist.is_backend_available('gloo')\n"
        "assert torch.distributed.is_backend_available('cpu:gloo,cuda:nccl')\n"
        "from torch.distributed import is_nccl_available\n"
        "backend = 'nccl' if is_nccl_available() else 'gloo'\n"
        "dist.init_process_group(backend)\n"
        "assert dist.get_backend() == dist.Backend.NCCL\n"
    )
    checked(ddlrun, code + END, ASKED)


def test_ddp_and_fsdp_of_a_replaced_name(ddlrun: Run) -> None:
    code = (
        "from torch.distributed.fsdp import fully_shard\n"
        "dist.init_process_group('nccl')\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))\n"
        "model(torch.ones(2, 4)).sum().backward()\n"
        "layer = torch.nn.Linear(4, 4)\n"
        "fully_shard(layer)\n"
        "layer(torch.ones(2, 4)).sum().backward()\n"
    )
    checked(ddlrun, code + END, ASKED)


def test_only_what_is_asked_for_is_replaced(ddlrun: Run) -> None:
    code = "dist.init_process_group('gloo')\nassert not is_ours() and works()\n"
    checked(ddlrun, code, {"DDL_INSTEAD_OF": "nccl"})


def test_torchs_checks_of_every_call_with_a_replaced_name(ddlrun: Run) -> None:
    code = "dist.init_process_group('nccl')\nassert works()\ndist.destroy_process_group()\n"
    checked(ddlrun, code, ASKED | {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


@pytest.mark.parametrize("launcher", ["torchrun", "mpiexec"])
def test_other_launchers_by_the_variable(launcher: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(USE + "dist.init_process_group('nccl')" + END)
    folder = Path(sys.executable).parent
    words = {
        "torchrun": [str(folder / "torchrun"), "--standalone", "--nproc-per-node", "2"],
        "mpiexec": [str(folder / "mpiexec"), "-n", "2", sys.executable],
    }[launcher]
    result = subprocess.run(
        [*words, str(program)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | ASKED | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "[ddl] serves as backend nccl (DDL_INSTEAD_OF)\n" in result.stderr


def test_a_name_that_ddl_does_not_stand_for_is_refused(ddlrun: Run) -> None:
    code = "try: dist.init_process_group('gloo')\nexcept ValueError as error: print(error)\n"
    result = ddlrun(1, code=USE + code, env={"DDL_INSTEAD_OF": "gloo,xccl"})
    said = "DDL_INSTEAD_OF=gloo,xccl: ddl cannot stand in for 'xccl'; write gloo or nccl, or both"
    assert said in result.stdout
