"""`ddlce audit FILE`: users' own libraries, held against an installed release."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from support.run import run

pytestmark = pytest.mark.built

YOUNG = '#include <stdlib.h>\nextern "C" unsigned young() { return arc4random(); }\n'
THROWS = "#include <stdexcept>\nvoid f() { throw std::runtime_error(__func__); }\n"


def audit(prefix: Path, *files: str | Path) -> tuple[int, str]:
    done = run(
        [prefix / "bin" / "ddlce", "audit", "--release", f"{prefix}/", *files],
        env={"PATH": os.defpath, "HOME": os.environ["HOME"]},
    )
    return done.returncode, done.stdout + done.stderr


def compile_(compiler: str | Path, source: str, output: Path, *options: str) -> Path:
    code = output.with_suffix(".cpp")
    code.write_text(source)
    command = [compiler, "-shared", "-fPIC", code, "-o", output, *options]
    run(command, env={"PATH": os.defpath}, check=True)
    return output


@pytest.fixture
def ours(prefix: Path) -> Path:
    return prefix / "bin" / "x86_64-conda-linux-gnu-g++"


def test_what_our_compilers_make_runs_everywhere(prefix: Path, ours: Path, tmp_path: Path) -> None:
    library = compile_(ours, THROWS, tmp_path / "libthrows.so")
    code, said = audit(prefix, library)
    assert (code, said) == (0, f"1 of 1 run wherever {prefix} runs\n")


@pytest.mark.skipif(platform.libc_ver()[1] < "2.36", reason="this machine's glibc is old")
def test_a_young_glibc_is_named(prefix: Path, tmp_path: Path) -> None:
    library = compile_("g++", YOUNG, tmp_path / "libyoung.so", f"-Wl,-rpath,{prefix}/lib")
    code, said = audit(prefix, library)
    assert code == 1
    assert "needs arc4random of GLIBC_2.36, and the release runs on glibc 2.28: " in said


def test_the_machines_library_in_place_of_ours(prefix: Path, tmp_path: Path) -> None:
    library = compile_("g++", THROWS, tmp_path / "libthrows.so")
    code, said = audit(prefix, library)
    assert code == 1
    taken = "does not say where libstdc++.so.6 is, so the machine's is taken where there is one: "
    assert f"{taken}link with -Wl,-rpath,{prefix}/lib" in said


def test_a_library_that_nobody_has(prefix: Path, ours: Path, tmp_path: Path) -> None:
    compile_(ours, THROWS, tmp_path / "libthrows.so", "-Wl,-soname,libthrows.so")
    user = "void f(); void g() { f(); }\n"
    linked = ("-L", str(tmp_path), "-lthrows")
    library = compile_(ours, user, tmp_path / "libuser.so", *linked)
    code, said = audit(prefix, library)
    assert code == 1
    assert (
        "needs libthrows.so, which neither the release nor a folder beside the file has: " in said
    )
    beside = compile_(ours, user, tmp_path / "libbeside.so", *linked, "-Wl,-rpath,$ORIGIN")
    assert audit(prefix, beside)[0] == 0
    # Of this machine, by its whole path: other nodes may not have it.
    here = compile_(ours, user, tmp_path / "libhere.so", *linked, f"-Wl,-rpath,{tmp_path}")
    assert audit(prefix, here)[0] == 1


def test_versions_above_ours(prefix: Path, ours: Path, tmp_path: Path) -> None:
    script = tmp_path / "versions"
    script.write_text("NEW_1 { };\nNEW_2 { };\n")
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, version in ((old, "NEW_1"), (new, "NEW_2")):
        folder.mkdir()
        source = f'extern "C" void h_() {{}}\n__asm__(".symver h_, h@@{version}");\n'
        options = (f"-Wl,--version-script,{script}", "-Wl,-soname,libv.so")
        if version == "NEW_1":
            (folder / "only").write_text("NEW_1 { };\n")
            options = (f"-Wl,--version-script,{folder / 'only'}", "-Wl,-soname,libv.so")
        compile_(ours, source, folder / "libv.so", *options)
    user = 'extern "C" void h(); void g() { h(); }\n'
    linked = ("-L", str(new), "-lv", "-Wl,-rpath,$ORIGIN/old")
    library = compile_(ours, user, tmp_path / "libuser.so", *linked)
    code, said = audit(prefix, library)
    assert code == 1
    assert f"needs NEW_2, which {old}/libv.so has not: it was linked with a newer one" in said


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (None, "cannot be read: "),
        (b"text\n", "neither a shared library nor a program"),
        (b"\x7fELF", "cannot be read: "),
    ],
)
def test_what_is_no_library_is_refused(
    prefix: Path, tmp_path: Path, content: bytes | None, wrong: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    code, said = audit(prefix, path)
    assert code == 2
    assert f"error: {path}: {wrong}" in said
    assert "Traceback" not in said


def test_another_processor(prefix: Path, ours: Path, tmp_path: Path) -> None:
    library = compile_(ours, THROWS, tmp_path / "libthrows.so")
    data = bytearray(library.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # e_machine: AARCH64
    library.write_bytes(data)
    code, said = audit(prefix, library)
    assert code == 1
    assert "is for AARCH64, and the release is for X86_64" in said
