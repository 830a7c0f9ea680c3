"""Starting the python of an environment that is still being made."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from pathlib import Path

import pytest

from ddlce.elf import read_elf
from ddlce.env.bytecode import _python, compile_bytecode
from ddlce.env.records import Record
from ddlce.errors import WorkError
from support.run import run
from support.synthetic import compile_c


def program(path: Path, *flags: str) -> str:
    """Compile a program in the place of python; returns the loader that it names."""
    source = "#include <stdio.h>\nint main(int n, char **v) { return puts(v[n - 1]) < 0; }"
    compile_c(path, source, *flags)
    elf = read_elf(path.read_bytes())
    assert elf
    return elf.interpreter


def test_a_python_on_the_machine_s_glibc(tmp_path: Path) -> None:
    program(tmp_path / "staging/bin/python")
    assert _python(tmp_path / "staging", tmp_path / "final") == [f"{tmp_path}/staging/bin/python"]


def test_a_python_whose_loader_is_not_there_yet(tmp_path: Path) -> None:
    staging, final = tmp_path / "staging", tmp_path / "final"
    machines = program(tmp_path / "machine/program")
    named = program(staging / "bin/python", f"-Wl,--dynamic-linker,{final}/lib/glibc/loader")
    assert named == f"{final}/lib/glibc/loader"
    (staging / "lib/glibc").mkdir(parents=True)
    shutil.copy(machines, staging / "lib/glibc/loader")
    command = _python(staging, final)
    assert command == [f"{staging}/lib/glibc/loader", f"{staging}/bin/python"]
    done = run([*command, "started"], check=True)
    assert done.stdout == "started\n"


def test_a_python_that_is_a_script(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text("#!/bin/sh\n")
    assert _python(tmp_path, tmp_path) == [f"{tmp_path}/bin/python"]


SITE = "lib/python3.11/site-packages"


def staged(folder: Path, python: str) -> list[Record]:
    """A prefix with two modules and a file that is no Python; its records."""
    (folder / "bin").mkdir()
    (folder / "bin/python").write_text(python)
    (folder / "bin/python").chmod(0o755)
    files = {
        "one.py": "x = 1\n",
        "deep/two.py": "y = 2\n",
        "odd.py": "'[Errno 28] no' not Python\n",
    }
    for name, text in files.items():
        (folder / SITE / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / SITE / name).write_text(text)
    entries = [{"_path": f"{SITE}/{name}", "path_type": "hardlink"} for name in files]
    data = {"name": "python", "version": "3.11.7", "paths_data": {"paths": entries}, "files": []}
    path = folder / "python-3.11.7-h0_0.json"
    path.write_text(json.dumps(data))
    return [Record(path)]


RUNS = f'#!/bin/sh\nexec {sys.executable} "$@"\n'


def test_what_is_no_python_is_left(tmp_path: Path) -> None:
    assert compile_bytecode(tmp_path, tmp_path, staged(tmp_path, RUNS)) == 2


def test_bytecode_that_cannot_be_written_is_missed(tmp_path: Path) -> None:
    """A release without some of it would stay so, as nobody may write there later."""
    records = staged(tmp_path, RUNS)
    (tmp_path / SITE / "deep/__pycache__").write_text("in the way\n")
    with pytest.raises(OSError, match="deep/__pycache__") as raised:
        compile_bytecode(tmp_path, tmp_path, records)
    assert raised.value.errno in (errno.EEXIST, errno.ENOTDIR)


def test_a_compiler_that_is_killed_is_missed(tmp_path: Path) -> None:
    records = staged(tmp_path, RUNS.replace("exec ", "") + "kill -9 $$\n")
    with pytest.raises(WorkError, match="killed by signal 9"):
        compile_bytecode(tmp_path, tmp_path, records)
