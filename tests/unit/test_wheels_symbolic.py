"""Libraries that prefer their own functions, whatever was loaded before them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.run import run

SCRIPT = Path(__file__).parents[2] / "recipes" / "wheels" / "symbolic.py"

#: Two libraries have `version`; `ask` of the second calls its own, or the first one's.
LIBRARY = """
int version(void) {{ return {number}; }}
int ask(void) {{ return version(); }}
void *table[] = {{ask}};
"""

LOAD = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
print(ctypes.CDLL(sys.argv[2]).ask())
"""


def library(folder: Path, number: int) -> Path:
    source, made = folder / f"{number}.c", folder / f"lib{number}.so"
    source.write_text(LIBRARY.format(number=number))
    command = ["gcc", "-O0", "-shared", "-fPIC", "-Wl,-z,combreloc", "-o", made, source]
    subprocess.run([str(word) for word in command], check=True)
    return made


def answer(first: Path, second: Path) -> int:
    command = [sys.executable, "-c", LOAD, str(first), str(second)]
    return int(run(command, check=True).stdout)


def edit(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(SCRIPT), *map(str, files)]
    return run(command)


def test_functions_are_its_own_afterwards(tmp_path: Path) -> None:
    first, second = library(tmp_path, 1), library(tmp_path, 2)
    assert answer(first, second) == 1
    assert edit(second).returncode == 0
    assert answer(first, second) == 2
    kept = second.read_bytes()
    assert edit(second).returncode == 0
    assert second.read_bytes() == kept


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text", "not a library of 64 bits, little-endian"),
        (b"\x7fELF\x02\x01" + bytes(100), "no dynamic section"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    done = edit(file)
    assert done.returncode == 1
    assert message in done.stderr
    assert file.read_bytes() == content
