"""The program where its modules cannot be loaded: one message, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddlce.cli import common
from ddlce.errors import InputError, print_error
from support.run import run as run_program

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_program([sys.executable, "-m", "ddlce", *words], env=os.environ | variables)


@pytest.mark.parametrize("module", ["typer", "rich", "pydantic"])
def test_modules_of_another_python(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text("raise ImportError('made for another Python')\n")
    done = run("lock", PYTHONPATH=f"{tmp_path}:{SCRIPTS}")
    assert done.returncode == 3
    assert done.stderr == (
        "error: ddlce cannot load its modules: made for another Python\nhint:  unset PYTHONPATH\n"
    )


# The one is loaded as the program begins, the other when a command needs it.
@pytest.mark.parametrize("library", ["libz.so.1", "libbz2.so.1.0"])
def test_libraries_of_another_python(tmp_path: Path, library: str) -> None:
    (tmp_path / library).write_text("not a library\n")
    done = run("index", LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"error: ddlce cannot load its modules: {tmp_path / library}: ")
    assert hint == "hint:  unset LD_LIBRARY_PATH"


#: The interpreter of a program in which rattler has run must not shut down.
WITH_RATTLER = """
import atexit, os, rattler
from ddlce.cli.app import end_process, run_designed
from ddlce.errors import InputError
atexit.register(os.abort)
def work():
    print("done", end="")
    {end}
end_process(lambda: run_designed(work))
"""


#: It looks at how a command ends.
CALLER = """
try:
    run_designed(work)
except SystemExit as ended:
    print(" after", ended.code, end="", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit", 0),
        ("raise InputError('no')", 2),
    ],
)
def test_where_rattler_has_run_no_interpreter_shuts_down(end: str, status: int) -> None:
    program = WITH_RATTLER.format(end=end)
    done = run_program(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(SCRIPTS)}
    )
    assert (done.returncode, done.stdout) == (status, "done"), done.stderr


def test_who_calls_a_command_goes_on_after_it() -> None:
    """As tests do, in one process: only the program's own end is the process's."""
    program = WITH_RATTLER.replace("end_process(lambda: run_designed(work))", CALLER)
    program = program.format(end="raise SystemExit(3)").replace("atexit.register(os.abort)", "")
    done = run_program(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(SCRIPTS)}
    )
    assert (done.returncode, done.stdout) == (0, "done after 3"), done.stderr


@pytest.mark.parametrize("flush", [False, True])
def test_where_rattler_has_run_a_full_disk_is_told_once(flush: bool) -> None:
    """At the end, or by the work itself: what it could not write is still in the buffer then."""
    program = WITH_RATTLER.format(end="pass").replace('end=""', f"flush={flush}")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("error: ") == 1
    assert "no space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_between_colons_stay_what_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """rich makes a picture of `:free:`, as in the name of a source."""
    for console in (common.out, common.err):
        console.print("pypi:free: 1.9", markup=False)
        console.print("pypi:free: 1.9")
    print_error(InputError("pypi:free: no", "pypi:lock: no"))
    said = capsys.readouterr()
    assert said.out.count("pypi:free: ") == 2
    assert said.err.count("pypi:free: ") == 3
    assert "pypi:lock: no" in said.err
