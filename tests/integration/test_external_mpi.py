"""The external variant of mpich: a site's MPI takes the place of ours, without rebuilding.

The site's MPI is a real other implementation: Intel MPI, from its wheel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from threading import Event

import pytest
from conda_package_streaming.extract import extract

from ddlce.engine.solve import solve
from ddlce.settings import load_settings
from ddlce.sources.client import DownloadError
from ddlce.sources.pip import pip_download
from support.run import run as run_program

pytestmark = pytest.mark.built

REPO = Path(__file__).parents[2]
CHANNEL = load_settings().channel
RANKS = (1, 2, 4)


def chosen(spec: str, cache: Path) -> dict[str, str]:
    """Name → file of each package that the solver chooses for a spec."""
    found = solve(
        [spec], {"ddl-ce": CHANNEL.as_uri()}, "linux-64", {"__glibc": "2.28", "__unix": "0"}, cache
    )
    return {package.name: package.file for package in found}


@pytest.fixture(scope="module")
def prefixes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both variants of our mpich, unpacked; a program linked against ours is in both."""
    folder = tmp_path_factory.mktemp("mpich")
    made = {}
    for variant, spec in {"conda": "mpich", "external": "mpich=*=external_*"}.items():
        found = chosen(spec, folder / "cache")
        made[variant] = folder / variant
        for name in {"mpich", "mpich-hydra"} & found.keys():
            extract(CHANNEL / "linux-64" / found[name], made[variant])
    ours, theirs = made["conda"], made["external"]
    source = REPO / "recipes" / "mpich" / "tests" / "reduce.c"
    flags = [f"-I{ours}/include", f"-L{ours}/lib", "-Wl,-rpath,$ORIGIN/../lib", "-lmpi"]
    program = ours / "bin" / "reduce"
    subprocess.run(["gcc", "-o", program, source, *flags], check=True)
    (theirs / "bin").mkdir(exist_ok=True)
    shutil.copy(program, theirs / "bin" / "reduce")
    return made


@pytest.fixture(scope="module")
def intel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's MPI: a folder with bin/ and lib/."""
    folder = tmp_path_factory.mktemp("intel")
    try:
        wheel = pip_download("impi-rt", folder, lambda _: None, Event())
    except DownloadError as error:
        pytest.skip(f"no Intel MPI to be had: {error.reason}")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    wheel.unlink()
    (data,) = folder.glob("impi_rt-*.data/data")
    for program in (data / "bin").iterdir():
        program.chmod(0o755)
    return data


def run(launcher: Path, program: Path, ranks: int, **variables: str) -> str:
    done = run_program(
        [launcher, "-n", str(ranks), program, str(ranks)],
        env={"PATH": f"{launcher.parent}:/usr/bin:/bin", "HOME": os.environ["HOME"], **variables},
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def libmpi(program: Path, **variables: str) -> str:
    """The libmpi that the dynamic linker takes for a program."""
    done = run_program(["ldd", program], env=variables)
    (line,) = [line for line in done.stdout.splitlines() if "libmpi.so" in line]
    return os.path.normpath(line.split("=>")[1].split("(")[0].strip())


def test_nobody_gets_the_empty_variant_without_asking(tmp_path: Path) -> None:
    default = chosen("mpich", tmp_path)
    external = chosen("mpich=*=external_*", tmp_path)
    assert not [file for file in default.values() if "external" in file]
    assert "external" in external["mpich"]
    assert default["mpi"] == external["mpi"]
    assert re.fullmatch(r"mpi-1\.0-mpich_h[0-9a-f]{10}_0\.conda", default["mpi"])


def test_ours_runs_by_itself(prefixes: dict[str, Path]) -> None:
    ours = prefixes["conda"]
    assert libmpi(ours / "bin" / "reduce") == str(ours / "lib" / "libmpi.so.12")
    for ranks in RANKS:
        assert f"{ranks} ranks agree" in run(ours / "bin/mpiexec", ours / "bin/reduce", ranks)


def test_the_external_variant_has_no_library(prefixes: dict[str, Path]) -> None:
    external = prefixes["external"]
    assert not list(external.rglob("libmpi*"))
    assert "LD_LIBRARY_PATH" in (external / "share/doc/mpich/external.txt").read_text()
    assert libmpi(external / "bin" / "reduce") == "not found"


def test_a_site_s_mpi_takes_its_place(prefixes: dict[str, Path], intel: Path) -> None:
    program = prefixes["external"] / "bin" / "reduce"
    library = str(intel / "lib")
    assert libmpi(program, LD_LIBRARY_PATH=library).startswith(library)
    variables = {"LD_LIBRARY_PATH": library, "I_MPI_FABRICS": "shm"}
    for ranks in RANKS:
        output = run(intel / "bin/mpiexec.hydra", program, ranks, **variables)
        assert f"{ranks} ranks agree" in output


def test_the_program_fails_loudly_without_any_mpi(prefixes: dict[str, Path]) -> None:
    if shutil.which("ldconfig") and "libmpi.so.12" in subprocess.getoutput("ldconfig -p"):
        pytest.skip("this machine has a libmpi.so.12 of its own")
    program = prefixes["external"] / "bin" / "reduce"
    done = run_program([program, "1"], env={})
    assert done.returncode == 127
    assert "libmpi.so.12" in done.stderr
