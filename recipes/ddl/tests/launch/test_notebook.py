"""ddl.notebook.run: functions as ranks of the real ddlrun, from programs of their own."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import Marked, forget_ignored_signals

# Functions of a module can be sent without cloudpickle, too.
WORK = """
import os, signal, sys, threading, time

RANK = int(os.environ.get("RANK", -1))

def name(word, *more):
    print("out", RANK)
    print("err", RANK, file=sys.stderr)
    return word * RANK, more, os.environ["WORLD_SIZE"]

def fail(last):
    if RANK == 1:
        raise KeyError("no such layer")
    time.sleep(last)

def die():
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)

def leave():
    if RANK == 1:
        sys.exit(3)

def vanish():
    if RANK == 1:
        os._exit(0)

def wait():
    print("up", flush=True)
    time.sleep(600)

def secret():
    return threading.Lock()

class Odd(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} is not {second}")

def odd():
    raise Odd("this", "that")

def look():
    found = {}
    for folder, names, files in os.walk(os.environ["TMPDIR"]):
        for each in (*names, *files):
            path = os.path.join(folder, each)
            found[os.path.relpath(path, os.environ["TMPDIR"])] = os.stat(path).st_mode & 0o7777
    return found
"""
HEAD = "import os, sys, threading, time, work\nfrom ddl import notebook\n"
NO_CLOUDPICKLE = "import sys; sys.modules['cloudpickle'] = None\n"

Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def private(tmp_path: Path, marked: Marked) -> Path:
    """Where temporary files go: its name marks the processes of the test."""
    folder = tmp_path / marked.mark
    folder.mkdir()
    return folder


@pytest.fixture
def begin(tmp_path: Path, private: Path) -> Iterator[Begin]:
    """Starts a program that has the module `work` beside it."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str, head: str = HEAD) -> subprocess.Popen[str]:
        (tmp_path / "work.py").write_text(WORK)
        (tmp_path / "program.py").write_text(head + textwrap.dedent(code))
        started.append(
            subprocess.Popen(
                [sys.executable, tmp_path / "program.py"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"TMPDIR": str(private)},
                preexec_fn=forget_ignored_signals,
            )
        )
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=20)


@pytest.fixture
def says(begin: Begin, private: Path, marked: Marked) -> Callable[..., str]:
    """Runs a program that must end well; what it prints. Nothing is left of its ranks."""

    def run(code: str, head: str = HEAD) -> str:
        process = begin(code, head)
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert marked.all_gone()
        assert list(private.iterdir()) == []
        return out

    return run


def caught(code: str) -> str:
    """A program that prints the exception of a call."""
    return (
        "try:\n"
        f"    {code}\n"
        "except Exception as error:\n"
        "    print('caught', type(error).__name__, error, sep='|')\n"
        "    print('cause', repr(error.__cause__))\n"
    )


def test_results_are_in_the_order_of_ranks(says: Callable[..., str]) -> None:
    out = says("print(notebook.run(work.name, 'ab', 1, None, ranks=3))")
    assert out.splitlines()[-1] == (
        "[('', (1, None), '3'), ('ab', (1, None), '3'), ('abab', (1, None), '3')]"
    )
    assert sorted(out.splitlines()[:-1]) == [f"[{n}@localhost] out {n}" for n in range(3)]


def test_standard_error_is_that_of_the_caller(begin: Begin) -> None:
    """Jupyter's cells have streams of Python, and not the process's own files."""
    process = begin("""
        import io
        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
        notebook.run(work.name, '', ranks=1)
        print(repr(sys.stdout.getvalue()), repr(sys.stderr.getvalue()), file=sys.__stdout__)
    """)
    out, errors = process.communicate(timeout=60)
    assert (out, errors) == ("'[0@localhost] out 0\\n' '[0@localhost] err 0\\n'\n", "")


def test_functions_of_the_program_itself(says: Callable[..., str]) -> None:
    pytest.importorskip("cloudpickle")
    out = says("""
        factor = 3
        def mine(x): return x * factor + work.RANK
        print(notebook.run(mine, 2, ranks=2), notebook.run(lambda: work.RANK, ranks=2))
    """)
    assert out == "[6, 7] [0, 1]\n"


def test_functions_of_modules_need_no_cloudpickle(says: Callable[..., str]) -> None:
    out = says("print(notebook.run(work.name, 'a', ranks=1)[0][0])", NO_CLOUDPICKLE + HEAD)
    assert out.splitlines()[-1] == ""


@pytest.mark.parametrize(
    ("function", "name"), [("mine", "mine"), ("lambda: 1", "<lambda>")], ids=["def", "lambda"]
)
def test_functions_of_the_program_without_cloudpickle(
    says: Callable[..., str], function: str, name: str
) -> None:
    code = f"def mine(): pass\n{caught(f'notebook.run({function})')}"
    first, *_ = says(code, NO_CLOUDPICKLE + HEAD).splitlines()
    assert first == (
        f"caught|SendError|{name} is defined here and not in a module, and cannot be sent without "
        "the package cloudpickle: install that, or move the function into a module"
    )


def test_an_argument_that_cannot_be_sent(says: Callable[..., str]) -> None:
    first, *_ = says(caught("notebook.run(work.name, 'a', threading.Lock())")).splitlines()
    assert first.startswith("caught|SendError|argument 1 (lock) cannot be sent to the ranks: ")


def test_a_result_that_cannot_be_sent(says: Callable[..., str]) -> None:
    out = says(caught("notebook.run(work.secret, ranks=1)"))
    begin = "caught|RankError|rank 0 raised TypeError: the result (lock) cannot be sent: "
    assert out.startswith(begin), out


def test_a_rank_s_exception(says: Callable[..., str]) -> None:
    out = says(caught("notebook.run(work.fail, 0, ranks=2)"))
    assert "caught|RankError|rank 1 raised KeyError: 'no such layer'\n" in out
    assert 'work.py", line 13, in fail\n    raise KeyError("no such layer")\n' in out
    assert "_notebook_rank" not in out
    assert out.endswith("cause KeyError('no such layer')\n")


def test_the_others_are_ended(says: Callable[..., str]) -> None:
    out = says(
        f"began = time.time()\n{caught('notebook.run(work.fail, 600)')}"
        "print(time.time() - began < 60)"
    )
    assert "caught|RankError|rank 1 raised KeyError" in out
    assert out.endswith("True\n")


def test_an_exception_that_cannot_be_sent_itself(says: Callable[..., str]) -> None:
    out = says(caught("notebook.run(work.odd, ranks=1)"))
    assert "caught|RankError|rank 0 raised work.Odd: this is not that\n" in out
    assert out.endswith("cause None\n")


def test_a_rank_that_leaves_by_sys_exit(says: Callable[..., str]) -> None:
    out = says(caught("notebook.run(work.leave, ranks=2)"))
    assert "caught|RankError|rank 1 raised SystemExit: 3\n" in out


def test_a_rank_that_is_killed(says: Callable[..., str]) -> None:
    out = says(caught("notebook.run(work.die, ranks=2)"))
    assert "caught|RunError|no result of rank 0, 1; ddlrun ended with status 137\n" in out
    assert "rank 1 on localhost was killed by SIGKILL (signal 9)" in out


def test_a_rank_that_ends_without_a_word(says: Callable[..., str]) -> None:
    out = says(caught("notebook.run(work.vanish, ranks=2)"))
    assert "caught|RunError|no result of rank 1; ddlrun ended with status 0\n" in out


def test_a_timeout(says: Callable[..., str]) -> None:
    out = says(caught("notebook.run(work.wait, ranks=2, timeout=2)"))
    assert (
        "caught|TimeoutError|ddlrun: timeout after 2 s; ended the ranks that were still running: "
    ) in out


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("run(5)", "SendError|run(): 5 is not a function"),
        ("run(work.wait, ranks=0)", "ValueError|ranks=0: not a whole number from 1"),
        ("run(work.wait, ranks=2.0)", "ValueError|ranks=2.0: not a whole number from 1"),
        ("run(work.wait, ranks=True)", "ValueError|ranks=True: not a whole number from 1"),
        ("run(work.wait, timeout=0)", "ValueError|timeout=0: not a number of seconds above 0"),
        (
            "run(work.wait, timeout=float('nan'))",
            "ValueError|timeout=nan: not a number of seconds above 0",
        ),
    ],
)
def test_wrong_arguments(says: Callable[..., str], call: str, message: str) -> None:
    assert says(caught(f"notebook.{call}")).startswith(f"caught|{message}\n")


def test_an_interrupt_ends_all_ranks(begin: Begin, private: Path, marked: Marked) -> None:
    process = begin("""
        try:
            notebook.run(work.wait, ranks=2)
        except KeyboardInterrupt:
            print('interrupted')
    """)
    assert process.stdout
    assert {process.stdout.readline(), process.stdout.readline()} == {
        "[0@localhost] up\n",
        "[1@localhost] up\n",
    }
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "interrupted\n")
    assert "ddlrun: SIGINT (signal 2): all ranks were ended" in errors
    assert marked.all_gone()
    assert list(private.iterdir()) == []


def test_ranks_end_with_a_caller_that_is_killed(begin: Begin, marked: Marked) -> None:
    """As Jupyter kills a kernel that does not end."""
    process = begin("notebook.run(work.wait, ranks=2)")
    assert process.stdout
    assert process.stdout.readline().endswith(" up\n")
    process.kill()
    assert marked.all_gone()


def test_files_are_private_whatever_the_umask(says: Callable[..., str]) -> None:
    out = says("os.umask(0)\nprint(notebook.run(work.look, ranks=1)[0])")
    found = {name.count("/"): mode for name, mode in eval(out).items()}
    assert found == {0: 0o700, 1: 0o600}


def test_nothing_is_imported_from_the_current_folder(tmp_path: Path, private: Path) -> None:
    for name in ("pickle", "ddl", "cloudpickle", "selectors"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} of the current folder')\n")
    code = "import os; from ddl import notebook; print(notebook.run(os.getpid, ranks=1)[0] > 0)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(private)},
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_traceback_shows_the_lines_of_cells(says: Callable[..., str]) -> None:
    """IPython keeps the text of cells where `linecache` finds it, under names of no file."""
    pytest.importorskip("cloudpickle")
    out = says(
        "import linecache\n"
        "cell = 'def mine():\\n    1 / 0  # the cell\\n'\n"
        "linecache.cache['<cell 1>'] = (len(cell), 1.0, cell.splitlines(True), '<cell 1>')\n"
        "exec(compile(cell, '<cell 1>', 'exec'))\n" + caught("notebook.run(mine, ranks=1)")
    )
    assert 'File "<cell 1>", line 2, in mine\n    1 / 0  # the cell\n' in out
