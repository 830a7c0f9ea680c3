"""Ranks that never come, that leave in the middle, and ddl's second life."""

import pytest
from rank_cases import Result, Run

ASK = """
import sys, time
import ddl, tensorflow as tf
def ask(word):
    try: print(word, ddl.allreduce(tf.ones(2)).numpy().sum(), flush=True)
    except tf.errors.AbortedError as error: print(word, error, flush=True)
ddl.init()
{}
"""


def run(ddlrun: Run, code: str, ranks: int = 2) -> Result:
    result = ddlrun(ranks, code=ASK.format(code))
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    return result


def said(result: Result, rank: int, word: str) -> str:
    """What the rank was told when it asked."""
    lines = [line for line in result.stdout.splitlines() if line.startswith(f"[{rank}@")]
    return next(line for line in lines if f"] {word} " in line)


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_first_operation_of_a_rank_does_not_come(ddlrun: Run, ranks: int) -> None:
    """The others end, and so does the rank when it comes after all; more calls end at once."""
    code = (
        "ddl.set_timeout(2)\n"
        "if ddl.rank() == 1: time.sleep(6)\n"
        "ask('first'); ddl.set_timeout(500); ask('second')\n"
    )
    result = run(ddlrun, code, ranks)
    for rank in {*range(ranks)} - {1}:
        for word in ("first", "second"):
            text = said(result, rank, word)
            assert "allreduce (sum) 'DdlAllreduce': waiting for the first operation of" in text
            assert "no answer within 2 s from rank 1 (host" in text or "rank 0 has given up" in text
    assert "no answer within 2 s from rank 1 (host" in said(result, 0, "first")
    assert "rank 0 has given up waiting for the first operation" in said(result, 1, "first")


def test_a_rank_ends_without_any_operation(ddlrun: Run) -> None:
    code = (
        "from ddl_tensorflow.library import ready\nready()\nif ddl.rank(): sys.exit()\nask('first')"
    )
    text = said(run(ddlrun, code), 0, "first")
    assert "allreduce (sum) 'DdlAllreduce': rank 1 has ended without an operation" in text


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_leaves_by_sys_exit(ddlrun: Run, ranks: int) -> None:
    """The others do not wait for the timeout, which is longer than this test's."""
    code = (
        "ddl.set_timeout(5000)\n"
        "ask('zeroth')\n"
        "if ddl.rank() == 1: sys.exit()\n"
        "ask('first'); ask('second')\n"
    )
    result = run(ddlrun, code, ranks)
    for rank in {*range(ranks)} - {1}:
        assert f"zeroth {2.0 * ranks}" in said(result, rank, "zeroth")
        for word in ("first", "second"):
            assert "'DdlAllreduce': rank 1 has ended its program" in said(result, rank, word)


def test_a_rank_leaves_while_the_others_are_in_a_collective_of_ddl_itself(ddlrun: Run) -> None:
    code = (
        "import numpy as np\n"
        "ddl.set_timeout(5000)\n"
        "ask('zeroth')\n"
        "if ddl.rank() == 1: sys.exit()\n"
        "try: ddl.allreduce(np.ones(3))\n"
        "except ddl.DDLError as error: print('first', error)\n"
    )
    assert "rank 1 (host" in said(run(ddlrun, code), 0, "first")


@pytest.mark.parametrize("longer", [0, 1])
def test_a_rank_goes_on_alone(ddlrun: Run, longer: int) -> None:
    """Longer than the others wait at their exit for its own; all end well."""
    code = f"ask('first')\nif ddl.rank() == {longer}: time.sleep(4)\nprint('end here')"
    result = run(ddlrun, code)
    assert result.stdout.count("end here") == 2
    assert "first 4.0" in said(result, 0, "first")


def test_a_second_life(ddlrun: Run) -> None:
    """Where others run MPI, ddl begins again; in between, a graph's operation says what to do."""
    code = (
        "from mpi4py import MPI\n"
        "import ddl, tensorflow as tf\n"
        "graph = tf.function(lambda x: ddl.allreduce(x, name='sum'))\n"
        "for life in range(3):\n"
        "    ddl.init()\n"
        "    print('life', life, graph(tf.ones(2)).numpy().sum(), flush=True)\n"
        "    ddl.finalize()\n"
        "    try: graph(tf.ones(2))\n"
        "    except tf.errors.FailedPreconditionError as error: print('between', error)\n"
    )
    result = ddlrun(2, code=code)
    assert result.returncode == 0, result.stderr[-4000:]
    for life in range(3):
        assert result.stdout.count(f"life {life} 4.0") == 2, result.stdout
    assert result.stdout.count("'sum': ddl is not initialised; call ddl.init() first") == 6


def test_a_second_life_without_mpi(ddlrun: Run) -> None:
    """What ddl has ended with itself cannot begin again, and ddl says so."""
    code = (
        "ask('first')\n"
        "ddl.finalize()\n"
        "try: ask('second')\n"
        "except ddl.DDLError as error: print('refused:', error)\n"
    )
    result = run(ddlrun, code)
    assert result.stdout.count("MPI has already been finalised in this process") == 2


def test_a_forked_process_ends_for_itself(ddlrun: Run) -> None:
    code = (
        "ask('before')\n"
        "import os\n"
        "child = os.fork() if ddl.rank() == 0 else None\n"
        "if child == 0: sys.exit(3)\n"
        "if child: assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3\n"
        "ask('after')\n"
    )
    result = run(ddlrun, code)
    for rank in range(2):
        assert said(result, rank, "after").endswith("4.0")


def test_an_exception_that_a_console_caught_ends_nothing(ddlrun: Run) -> None:
    code = "ask('before')\nimport code\ncode.InteractiveInterpreter().runsource('1 / 0')\n"
    result = run(ddlrun, code + "ask('after')\n")
    for rank in range(2):
        assert said(result, rank, "after").endswith("4.0")
