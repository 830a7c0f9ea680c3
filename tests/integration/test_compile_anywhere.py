"""What users compile, in a root that has neither /usr nor a compiler, and nothing activated.

The root has the release, glibc's libraries, and where a case says so a shell, as containers have.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.built, pytest.mark.timeout(1200)]

GLIBC = ("libc", "libm", "libdl", "libpthread", "librt", "libutil", "libresolv")
SHELL = ("bash", "sh", "sed", "expr", "cat", "dirname", "basename", "env")

COMPILED = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
torch.manual_seed(0)
x = torch.randn(4, 8)
torch.testing.assert_close(torch.compile(model)(x), model(x))
print("compiled")
"""

INLINE = """
import torch
from torch.utils import cpp_extension
source = "torch::Tensor twice(torch::Tensor x) { return x * 2; }"
module = cpp_extension.load_inline("inline_twice", source, functions=["twice"])
print(module.twice(torch.ones(2)).tolist())
"""

SETUP = """
from setuptools import Extension, setup
setup(name="answer", version="1", ext_modules=[Extension("answer", ["answer.cpp"], language="c++")])
"""

ANSWER = """
#include <Python.h>
#include <vector>
static PyObject *get(PyObject *, PyObject *) {
  return PyLong_FromLong(std::vector<int>(42).size());
}
static PyMethodDef methods[] = {{"get", get, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "answer", "", -1, methods};
PyMODINIT_FUNC PyInit_answer() { return PyModule_Create(&module); }
"""

MPI = """
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words) {
  int rank;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  printf("rank %d\\n", rank);
  return MPI_Finalize();
}
"""


@pytest.fixture
def release(prefix: Path) -> Path:
    if not (prefix / "bin" / "x86_64-conda-linux-gnu-g++").exists():
        pytest.skip("the built environment is of before its own compilers")
    return prefix


def alone(
    prefix: Path, folder: Path, *command: str | Path, shell: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in that root, in a folder that it may write."""
    root = [*("bwrap", "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev")]
    root += [
        "--tmpfs",
        "/tmp",
        "--dir",
        "/home/user",
        "--clearenv",
        "--setenv",
        "HOME",
        "/home/user",
    ]
    files = libraries("/bin/bash") if shell else {}
    for name in SHELL if shell else ():
        program = shutil.which(name)
        assert program, name
        files |= {Path("/bin", name): Path(program), Path("/usr/bin", name): Path(program)}
        files |= libraries(program)
    files |= libraries(prefix / "bin" / "python")
    beside = next(path for path in files if path.name == "libc.so.6").parent
    for name in GLIBC:
        for path in beside.glob(f"{name}.so.*"):
            files[path] = path
    for place, file in files.items():
        if prefix not in file.parents:
            root += ["--ro-bind", str(file.resolve()), str(place)]
    root += ["--ro-bind", str(prefix), str(prefix), "--bind", str(folder), str(folder)]
    for name, value in variables.items():
        root += ["--setenv", name, value]
    return subprocess.run(
        [*root, "--chdir", str(folder), "--", *command], capture_output=True, text=True, check=False
    )


def libraries(program: str | Path) -> dict[Path, Path]:
    """What the machine's loader gives the program, and the loader itself."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    words = (word for line in listed.splitlines() for word in line.split())
    return {Path(word): Path(word) for word in words if word.startswith("/")}


def test_torch_compile(release: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COMPILED)  # Dynamo reads the source
    done = alone(release, tmp_path, release / "bin" / "python", "program.py")
    assert done.stdout == "compiled\n", done.stderr


def test_extensions_of_torch(release: Path, tmp_path: Path) -> None:
    done = alone(release, tmp_path, release / "bin" / "python", "-c", INLINE, shell=True)
    assert done.stdout == "[2.0, 2.0]\n", done.stderr


def test_extensions_of_python(release: Path, tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "answer.cpp").write_text(ANSWER)
    python = release / "bin" / "python"
    done = alone(release, tmp_path, python, "setup.py", "-q", "build_ext", "--inplace")
    assert done.returncode == 0, done.stderr
    done = alone(release, tmp_path, python, "-c", "import answer; print(answer.get())")
    assert done.stdout == "42\n", done.stderr


def test_programs_of_mpi(release: Path, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(MPI)
    command = "mpicc program.c -o program && ddlrun -H localhost:2 ./program"
    done = alone(
        release, tmp_path, "/bin/sh", "-c", command, shell=True, PATH=f"{release}/bin:/bin"
    )
    said = [line.rpartition("] ")[2] for line in done.stdout.splitlines()]  # ddlrun names the rank
    assert sorted(said) == ["rank 0", "rank 1"], done.stderr


def test_a_compiler_that_is_given_is_respected(release: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COMPILED)
    done = alone(release, tmp_path, release / "bin" / "python", "program.py", CXX="/no/such/g++")
    assert done.returncode == 1
    assert "/no/such/g++" in done.stderr
