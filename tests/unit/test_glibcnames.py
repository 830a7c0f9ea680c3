"""Symbol versions under other names, on programs of this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from ddlce.elf import read_elf
from support.glibcnames import elf_hash, pretend
from support.run import run

SOURCE = "#include <math.h>\nint main(int c, char **v) { (void)v; return exp(c) < 2; }\n"


def test_younger_versions_are_missing_afterwards(tmp_path: Path) -> None:
    """exp has had a version of 2.29 since then."""
    (tmp_path / "p.c").write_text(SOURCE)
    program = tmp_path / "program"
    subprocess.run(["gcc", "-o", program, tmp_path / "p.c", "-lm"], check=True)
    older = shutil.copy(program, tmp_path / "older")
    before = read_elf(program.read_bytes())
    assert before
    assert "GLIBC_2.29" in before.wants
    assert pretend(tmp_path, "2.36", "2.28") == [Path(older), program]
    after = read_elf(program.read_bytes())
    assert after
    assert "GLIBC_2.29" not in after.wants
    done = run([program])
    assert "version `GLIBX_2.29' not found" in done.stderr, "the hash fits the new name"
    assert pretend(tmp_path, "2.36", "2.28") == [], "once is enough"


def test_the_hash_is_the_linker_s() -> None:
    assert elf_hash(b"GLIBC_2.2.5") == 0x09691A75
