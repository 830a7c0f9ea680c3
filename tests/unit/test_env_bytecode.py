"""Starting the python of an environment that is still being made."""

from __future__ import annotations

import shutil
from pathlib import Path

from ddlce.elf import read_elf
from ddlce.env.bytecode import _python
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
