"""How process groups begin and end, and what happens when a rank fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rank_cases import Run

BEGIN = """
import os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("ddl", timeout=timedelta(seconds=300))
rank, tensor = dist.get_rank(), torch.ones(1000)
dist.all_reduce(tensor)
"""


def test_import_torch_knows_the_backend_and_loads_nothing(ddlrun: Run) -> None:
    """Nor in a rank of ddlrun's: `import ddl` has Keras's optimizers average there."""
    code = (
        "import sys, torch.distributed as dist\n"
        "assert 'ddl' in dist.Backend.backend_list\n"
        "assert 'ddl_torch' in sys.modules\n"
        "assert not {'ddl', 'ddl._core', 'ddl_torch._backend'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    result = ddlrun(1, code=code)
    assert result.returncode == 0, result.stderr


def test_an_explicit_import_is_allowed_and_enough() -> None:
    code = "import ddl_torch, torch; ddl_torch.register(); torch.distributed.Backend('ddl')"
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=300,
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )


def test_one_rank_without_a_launcher() -> None:
    code = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('ddl', rank=0, world_size=1, store=dist.HashStore())\n"
        "t = torch.ones(3); dist.all_reduce(t); assert t.sum() == 3\n"
        "dist.destroy_process_group()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_other_ranks_than_mpis_are_refused(ddlrun: Run) -> None:
    code = "import os; os.environ['RANK'] = str(1 - int(os.environ['RANK']))" + BEGIN
    result = ddlrun(2, code=code)
    assert result.returncode != 0
    assert "of 2 for torch (RANK, WORLD_SIZE), but rank" in result.stderr


def test_the_group_can_be_made_again(ddlrun: Run, tmp_path: Path) -> None:
    """Over a store of its own: at the port of the first, a quick rank meets its closing store."""
    store = f'init_method="file://{tmp_path}/store", rank=rank, world_size=2'
    again = BEGIN.replace('"ddl",', f'"ddl", {store},')
    code = BEGIN + "dist.destroy_process_group()\n" + again + "dist.destroy_process_group()"
    result = ddlrun(2, code=code)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("ranks", [1, 3])
def test_exit_without_destroy(ddlrun: Run, ranks: int) -> None:
    result = ddlrun(ranks, code=BEGIN + "work = dist.all_reduce(tensor, async_op=True)")
    assert result.returncode == 0, result.stderr


def test_a_used_up_group_says_so(ddlrun: Run) -> None:
    code = BEGIN + (
        "group = dist.distributed_c10d._get_default_group()\n"
        "dist.destroy_process_group()\n"
        "try: group.allreduce([tensor])\n"
        "except ValueError as error: print(error)"
    )
    assert "the process group has been destroyed" in ddlrun(1, code=code).stdout


def test_a_rank_that_dies(ddlrun: Run) -> None:
    result = ddlrun(3, code=BEGIN + "if rank == 1: os.kill(os.getpid(), 9)\ndist.barrier()")
    assert result.returncode == 137
    assert "ddlrun: rank 1 on localhost was killed by SIGKILL" in result.stderr


def test_an_uncaught_exception_ends_the_job(ddlrun: Run) -> None:
    result = ddlrun(2, code=BEGIN + "if rank == 1: raise KeyError('nothing')\ndist.barrier()")
    assert result.returncode != 0
    assert "KeyError: 'nothing'" in result.stderr


FORK = """
child = os.fork() if rank == 0 else None
if child == 0: sys.exit(3)
if child: assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
dist.all_reduce(tensor)
print("went on", flush=True)
"""


def test_a_forked_process_ends_for_itself(ddlrun: Run) -> None:
    result = ddlrun(2, code=BEGIN + FORK)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("went on") == 2


def test_an_exception_that_a_console_caught_ends_nothing(ddlrun: Run) -> None:
    catch = "import code; code.InteractiveInterpreter().runsource('1 / 0')\n"
    result = ddlrun(2, code=BEGIN + catch + "print('ends well', flush=True)")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("ends well") == 2


def test_a_rank_that_leaves_early_does_not_leave_the_others_waiting(ddlrun: Run) -> None:
    code = BEGIN + "if rank == 1: sys.exit(0)\ndist.all_reduce(tensor)\nprint('not reached')"
    result = ddlrun(2, code=code)
    assert result.returncode != 0
    assert "not reached" not in result.stdout
    assert "barrier" in result.stderr
    assert "timeout after" not in result.stderr


def test_timeouts_are_torchs(ddlrun: Run) -> None:
    """Rank 1 comes too late: the others' wait ends with ddl's sentence, which names it."""
    code = BEGIN + (
        "options = dist.BarrierOptions()\n"
        "options.timeout = timedelta(seconds=2)\n"
        "if rank == 1: time.sleep(8)\n"
        "try: dist.group.WORLD.barrier(options).wait()\n"
        "except dist.DistBackendError as error: print(error)\n"
    )
    result = ddlrun(2, code=code)
    lines = [line for line in result.stdout.splitlines() if line.startswith("[0@")]
    assert len(lines) == 1, result.stdout + result.stderr
    assert "ddl: " in lines[0]
    assert "rank 1" in lines[0]


def test_a_monitored_barrier_names_the_rank_that_does_not_come(ddlrun: Run) -> None:
    """As torch's own function with Gloo: the first that does not come, or all of them."""
    code = BEGIN + (
        "limit = timedelta(seconds=2)\n"
        "if rank in (1, 3): time.sleep(8)\n"
        "try: dist.monitored_barrier(timeout=limit, wait_all_ranks=len(sys.argv) > 1)\n"
        "except RuntimeError as error: print('refused:', error)\n"
    )
    for words, who in (((), "Rank 1"), (("all",), "Ranks 1, 3")):
        result = ddlrun(4, *words, code=code)
        lines = [line for line in result.stdout.splitlines() if line.startswith("[0@")]
        assert len(lines) == 1, result.stdout + result.stderr
        assert f"refused: ddl: {who} failed to pass monitoredBarrier in 2000 ms" in lines[0]
        assert result.stdout.count("refused: ") == 4, result.stdout
        assert result.returncode == 0, result.stderr


def test_ddls_own_timeout_stays_the_programs(ddlrun: Run) -> None:
    """Each operation of torch has a timeout of its own, and leaves nothing behind."""
    code = (
        "import ddl\n"
        + BEGIN
        + (
            "assert ddl.timeout() == 60\n"
            "dist.monitored_barrier(timeout=timedelta(seconds=3))\n"
            "dist.all_reduce(tensor, group=dist.new_group(timeout=timedelta(seconds=7)))\n"
            "assert ddl.timeout() == 60\n"
            "ddl.set_timeout(50)\n"
            "dist.barrier()\n"
            "assert ddl.timeout() == 50\n"
        )
    )
    result = ddlrun(2, code=code)
    assert result.returncode == 0, result.stderr


def test_groups_that_wait_at_the_same_time_have_timeouts_of_their_own(ddlrun: Run) -> None:
    """Rank 1 comes late to both: rank 0 gives up in the one group, and goes on in the other."""
    code = BEGIN + (
        "short = dist.new_group(timeout=timedelta(seconds=2))\n"
        "dist.barrier()\n"
        "if rank == 1: time.sleep(6)\n"
        "long = dist.all_reduce(tensor, async_op=True)\n"
        "try: dist.all_reduce(torch.ones(3), group=short)\n"
        "except dist.DistBackendError: print('gave up')\n"
        "long.wait()\n"
        "assert tensor[0] == 4, tensor\n"
        "print('the other is done')\n"
    )
    result = ddlrun(2, code=code)
    assert "[0@localhost] gave up" in result.stdout, result.stdout + result.stderr
    assert result.stdout.count("the other is done") == 2, result.stdout + result.stderr


def test_an_abort_ends_the_operation_that_runs(ddlrun: Run) -> None:
    """It does not wait for the operation's own timeout, which is five minutes here."""
    code = BEGIN + (
        "group = dist.new_group()\n"
        "if rank == 0:\n"
        "    works = [dist.all_reduce(tensor, group=group, async_op=True) for _ in range(2)]\n"
        "    works.append(dist.irecv(torch.ones(3), 1, group=group))\n"
        "    time.sleep(1)\n"
        "    group.abort()\n"
        "    for work in works:\n"
        "        try: work.wait()\n"
        "        except dist.DistBackendError as error: print(error)\n"
        "dist.barrier()\n"
        "if rank == 1: group.abort()\n"
    )
    result = ddlrun(2, code=code, options=("-timeout", "100"))
    assert result.stdout.count("ddl: the process group was aborted") == 3, result
    assert result.returncode == 0, result.stderr


def test_ranks_leave_their_groups_in_one_order(ddlrun: Run) -> None:
    """Wherever the groups lie in memory: else each waits 5 s for a rank that waits in another."""
    code = BEGIN + (
        "first = [dist.new_group() for _ in range(30)]\n"
        "for group in first if rank else first[::-1]:\n"
        "    group.shutdown()\n"
        "order = first if rank else first[::-1]\n"
        "for group in order: dist.destroy_process_group(group)\n"
        "del first, order, group\n"
        "groups = [dist.new_group() for _ in range(30)]\n"
    )
    result = ddlrun(2, code=code, options=("-timeout", "100"))
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_more_groups_than_mpi_has_communicators(ddlrun: Run) -> None:
    """MPICH has 2048: what is destroyed is given back, and what lives is refused in plain words."""
    code = BEGIN + (
        "for _ in range(1500):\n"
        "    dist.destroy_process_group(dist.new_group())\n"
        "kept = []\n"
        "try:\n"
        "    while len(kept) < 3000: kept.append(dist.new_group())\n"
        "except RuntimeError as error: print('refused:', error)\n"
        "for group in kept: dist.destroy_process_group(group)\n"
        "dist.all_reduce(tensor, group=dist.new_group())\n"
        "print('goes on with', tensor[0].item())\n"
    )
    result = ddlrun(2, code=code)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("refused: ddl: ddl_comm_create: MPI has no communicator left") == 2
    assert "destroy groups that are no longer needed" in result.stdout
    assert result.stdout.count("goes on with 4.0") == 2


def test_torchs_checks_of_every_call(ddlrun: Run) -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL puts a wrapper of torch's around the backend."""
    code = BEGIN + (
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))\n"
        "model(torch.ones(2, 3)).sum().backward()\n"
        "group = dist.new_group([0, 1])\n"
        "dist.all_reduce(tensor, group=group)\n"
        "assert tensor[0] == 4, tensor\n"
        "try: dist.all_reduce(torch.ones(3 + rank))\n"
        "except RuntimeError as error: print('found:', error)\n"
        "dist.destroy_process_group()"
    )
    result = ddlrun(2, code=code, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    assert result.returncode == 0, result.stderr
    assert "found: Detected mismatch between collectives on ranks" in result.stdout


def test_code_on_a_future_that_never_ends_does_not_hold_the_exit(ddlrun: Run) -> None:
    code = BEGIN + (
        "work = dist.all_reduce(tensor, async_op=True)\n"
        "future = work.get_future().then(lambda f: time.sleep(60))\n"
        "work.wait()"
    )
    result = ddlrun(2, code=code)
    assert result.returncode != 0
    assert "code that hangs on a future (then) is still running" in result.stderr


def test_gloo_and_ddl_side_by_side(ddlrun: Run) -> None:
    code = BEGIN.replace('"ddl"', '"gloo"') + (
        "group = dist.new_group(backend='ddl')\n"
        "dist.all_reduce(tensor, group=group)\n"
        "assert tensor[0] == 4, tensor\n"
        "dist.destroy_process_group()"
    )
    result = ddlrun(2, code=code)
    assert result.returncode == 0, result.stderr
