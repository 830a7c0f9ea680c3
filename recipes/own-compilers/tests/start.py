"""What a Python that nobody activated finds, and what a user has set."""

import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = "x86_64-conda-linux-gnu"
PROGRAMS = f"{sys.base_prefix}/{TARGET}/gcc/bin"


def run(script: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stderr == "", done.stderr
    return done.stdout.strip()


def path(**variables: str) -> str:
    return run("import os; print(os.environ['PATH'])", **variables)


# The machine's programs come first, and CC and CXX are the user's.
assert path(PATH="/first") == f"/first:{PROGRAMS}"
assert path(PATH=f"/first:{PROGRAMS}") == f"/first:{PROGRAMS}"
assert path().endswith(f":{PROGRAMS}")
assert path(PATH="") == PROGRAMS
assert run("import os; print({'CC', 'CXX'} & os.environ.keys())") == "set()"

# PyTorch's compiler: the user's, unless it is too old.
with tempfile.TemporaryDirectory() as folder:
    for version in ("8.5.0", "10.2.1"):
        program = Path(folder, f"g++-{version}")
        program.write_text(f"#!/bin/sh\necho 'g++ (GCC) {version} 20210514 (Red Hat)'\n")
        program.chmod(0o755)
    for given, taken in {
        "": f"{TARGET}-g++",
        "/no/such/g++": "/no/such/g++",
        f"{folder}/g++-8.5.0": f"{TARGET}-g++",
        f"{folder}/g++-10.2.1 -m64": f"{folder}/g++-10.2.1 -m64",
    }.items():
        script = "from own_compilers import torch_compilers; print(torch_compilers.cxx())"
        assert run(script, CXX=given, PATH="/bin") == taken, given

# By this name, too, which no other compiler has.
which = (
    "import shutil; from own_compilers import torch_compilers as t; print(shutil.which(t.cxx()))"
)
assert run(which, PATH="/nonexistent") == f"{PROGRAMS}/{TARGET}-g++"

# A source package for this Python, compiled and linked by the names that setuptools asks for.
with tempfile.TemporaryDirectory() as folder:
    source = Path(folder, "answer.c")
    source.write_text(
        "#include <Python.h>\n"
        'static struct PyModuleDef m = {PyModuleDef_HEAD_INIT, "answer"};\n'
        "PyMODINIT_FUNC PyInit_answer(void) { return PyModule_Create(&m); }\n"
    )
    script = (
        "import subprocess, sysconfig, sys\n"
        "command = ['gcc', '-shared', '-fPIC', '-I' + sysconfig.get_path('include')]\n"
        f"command += [{str(source)!r}, '-o', {folder!r} + '/answer.so']\n"
        "subprocess.run(command, check=True)\n"
        f"sys.path.insert(0, {folder!r}); import answer; print(answer.__name__)\n"
    )
    assert run(script, PATH="/nonexistent") == "answer"
