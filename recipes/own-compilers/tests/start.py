"""What a Python that nobody activated finds, and what a user has set."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SHOW = (
    "import os, shutil; print(os.environ['CC'], os.environ['CXX'], shutil.which(os.environ['CXX']))"
)


def show(**variables: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", SHOW],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


prefix = sys.base_prefix
ours = [f"x86_64-conda-linux-gnu-{name}" for name in ("gcc", "g++")]
assert show() == [*ours, f"{prefix}/bin/{ours[1]}"]
assert show(PATH="/nonexistent") == [*ours, f"{prefix}/bin/{ours[1]}"]
# A compiler that is given on purpose is respected, and so is the order of PATH.
assert show(CC="mine", CXX="c++", PATH="/nonexistent")[:2] == ["mine", "c++"]
path = subprocess.run(
    [sys.executable, "-c", "import os; print(os.environ['PATH'])"],
    env={"PATH": f"/first:{prefix}/bin"},
    capture_output=True,
    text=True,
    check=True,
)
assert path.stdout == f"/first:{prefix}/bin\n"

# A source package for this Python, compiled and linked by what setuptools asks for.
with tempfile.TemporaryDirectory() as folder:
    source = Path(folder, "answer.c")
    source.write_text(
        "#include <Python.h>\n"
        'static struct PyModuleDef m = {PyModuleDef_HEAD_INIT, "answer"};\n'
        "PyMODINIT_FUNC PyInit_answer(void) { return PyModule_Create(&m); }\n"
    )
    script = (
        "import shlex, subprocess, sysconfig, os\n"
        "command = [os.environ['CC'], '-shared', '-fPIC', '-I' + sysconfig.get_path('include')]\n"
        f"command += [{str(source)!r}, '-o', {folder!r} + '/answer.so']\n"
        "subprocess.run(command, check=True)\n"
        f"import sys; sys.path.insert(0, {folder!r}); import answer; print(answer.__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "answer\n", done.stderr
    assert shutil.which("x86_64-conda-linux-gnu-gcc", path=f"{prefix}/bin")
