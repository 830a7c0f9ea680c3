"""ddlrun stands in a folder where somebody has left modules and programs that it must not run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import SOURCE

DDLRUN = Path(sys.executable).with_name("ddlrun")
#: Of the standard library, and what the library and its probe import.
PLANTED = ("json", "typing", "itertools", "dataclasses", "ctypes", "numpy", "ddl", "sitecustomize")
SSH = '#!/bin/sh\nfor word; do case $word in far) shift; exec sh -c "$*";; esac; shift; done\n'

pytestmark = pytest.mark.skipif(not DDLRUN.is_file(), reason="needs the installed library")


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    folder = tmp_path / "trap"
    folder.mkdir()
    for name in PLANTED:
        spring = f"open({str(tmp_path / 'sprung')!r}, 'a').write(__name__ + chr(10))\n"
        (folder / f"{name}.py").write_text(spring)
    for name in ("mpiexec", "ssh", "srun", "nvidia-smi"):
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/sprung\n")
        (folder / name).chmod(0o755)
    return folder


def sprung(trap: Path) -> str:
    trace = trap.parent / "sprung"
    return trace.read_text() if trace.exists() else ""


def ddlrun(trap: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [str(DDLRUN), *words],
        cwd=trap,
        env=own | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    """A PATH with an ssh that starts here what it is told to start on the host `far`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(SSH)
    (folder / "ssh").chmod(0o755)
    return f":{folder}:{os.environ['PATH']}"  # the empty part means the current folder


def test_show_topology(trap: Path, ssh: str) -> None:
    done = ddlrun(trap, "-H", "localhost:2", "-show_topology", PATH=ssh)
    assert (done.returncode, sprung(trap)) == (0, ""), done.stderr
    done = ddlrun(trap, "-H", "localhost:1,far:1", "-show_topology", PATH=ssh)
    assert sprung(trap) == ""
    assert done.stdout.startswith("2 hosts"), done.stderr


def test_probe(trap: Path, ssh: str) -> None:
    done = ddlrun(trap, "-H", "localhost:1,far:1", "-probe", "found.yaml", PATH=ssh)
    assert sprung(trap) == ""
    assert (trap / "found.yaml").is_file(), done.stderr


@pytest.mark.parametrize("path", [":", "/nowhere:", ".:/nowhere"])
def test_a_python_path_with_the_current_folder(trap: Path, path: str) -> None:
    """`PYTHONPATH=$PYTHONPATH:/mine` has an empty part where nothing was set."""
    for words in (("-version",), ("-H", "localhost:1", "true")):
        done = ddlrun(trap, *words, PYTHONPATH=path)
        assert (done.returncode, sprung(trap)) == (0, ""), done.stderr


def test_a_user_s_program_still_has_its_own_folder_and_path(trap: Path, tmp_path: Path) -> None:
    """What the rank is, is the user's matter: Python's own rules hold."""
    for name in PLANTED:
        (trap / f"{name}.py").unlink()
    (trap / "helper.py").write_text("NAME = 'beside'\n")
    (trap / "train.py").write_text("import helper, other; print(helper.NAME, other.NAME)\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "other.py").write_text("NAME = 'by PYTHONPATH'\n")
    lib = str(tmp_path / "lib")
    done = ddlrun(trap, "-H", "localhost:1", sys.executable, "train.py", PYTHONPATH=lib)
    assert done.stdout.endswith("] beside by PYTHONPATH\n"), done.stderr


def test_the_program_finds_a_python_whose_path_is_long(tmp_path: Path) -> None:
    """Of a first line, the kernel reads 127 or 255 characters only."""
    template = SOURCE.parent / "cmake" / "ddlrun.in"
    if not template.is_file():
        pytest.skip("needs the source tree")
    folder = tmp_path / "/".join(["a folder with a long name"] * 12)
    folder.mkdir(parents=True)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    script = tmp_path / "ddlrun"
    script.write_text(template.read_text().replace("@Python_EXECUTABLE@", str(python)))
    script.chmod(0o755)
    done = subprocess.run([script, "-version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
