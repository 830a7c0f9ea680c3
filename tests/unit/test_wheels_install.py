"""The build script of wheel packages: every file in its place, nothing else."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ddlce.builder.repack import EPOCH
from ddlce.elf import read_elf
from support.run import ok, run
from support.wheelfiles import make_wheel

SCRIPT = Path(__file__).parents[2] / "recipes" / "wheels" / "install_wheel.py"
SITE = Path("lib/python3.11/site-packages")
INFO = "demo-1.0.dist-info"


def install(source: Path, prefix: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SRC_DIR": str(source), "PREFIX": str(prefix)}
    environment["SOURCE_DATE_EPOCH"] = "1795646760"  # the engine's: the time of the build
    return run([sys.executable, "-I", str(SCRIPT), "--python", "3.11", *options], env=environment)


def make(folder: Path) -> None:
    """A wheel with a file in every scheme."""
    folder.mkdir(exist_ok=True)
    make_wheel(
        folder,
        files={
            "demo/tool": b"#!/bin/sh\n",
            "demo/old.pyc": b"compiled",
            "demo-1.0.data/scripts/run-demo": b"#!python\nprint('run')\n",
            "demo-1.0.data/scripts/plain": b"#!/bin/sh\necho plain\n",
            "demo-1.0.data/data/share/demo/data.txt": b"data",
            "demo-1.0.data/headers/demo.h": b"#define DEMO\n",
            "demo-1.0.data/purelib/extra.py": b"",
            f"{INFO}/direct_url.json": b"{}",
            f"{INFO}/INSTALLER": b"pip\n",
        },
        scripts="[console_scripts]\ndemo = demo:main\ndeep = demo:obj.method\n",
        executable=("demo/tool",),
    )


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    make(tmp_path / "src")
    ok(install(tmp_path / "src", tmp_path / "prefix", "--scripts"))
    return tmp_path / "prefix"


def files(prefix: Path) -> set[str]:
    return {str(p.relative_to(prefix)) for p in prefix.rglob("*") if p.is_file()}


def test_every_file_is_in_its_place_and_no_other(prefix: Path) -> None:
    in_site = {
        "demo/__init__.py",
        "demo/tool",
        "extra.py",
        f"{INFO}/METADATA",
        f"{INFO}/WHEEL",
        f"{INFO}/entry_points.txt",
        f"{INFO}/licenses/LICENSE",
    }
    assert files(prefix) == {str(SITE / name) for name in in_site} | {
        "bin/run-demo",
        "bin/plain",
        "bin/demo",
        "bin/deep",
        "share/demo/data.txt",
        "include/python3.11/demo/demo.h",
    }


def test_another_name_of_the_distribution_is_in_its_metadata(tmp_path: Path) -> None:
    make(tmp_path / "src")
    ok(install(tmp_path / "src", tmp_path / "prefix", "--distribution", "demo-whole"))
    site = tmp_path / "prefix" / SITE
    assert [p.name for p in site.glob("*.dist-info")] == ["demo_whole-1.0.dist-info"]
    metadata = (site / "demo_whole-1.0.dist-info/METADATA").read_text()
    assert [line for line in metadata.splitlines() if "Name:" in line] == ["Name: demo-whole"]


def test_modes_are_those_of_the_wheel(prefix: Path) -> None:
    modes = {n: stat.S_IMODE((prefix / n).stat().st_mode) for n in files(prefix)}
    executable = {n for n, mode in modes.items() if mode == 0o755}
    assert executable == {
        "bin/run-demo",
        "bin/plain",
        "bin/demo",
        "bin/deep",
        str(SITE / "demo/tool"),
    }
    assert {mode for n, mode in modes.items() if n not in executable} == {0o644}


def test_scripts_call_the_prefix_s_python(prefix: Path) -> None:
    assert (prefix / "bin/run-demo").read_text() == f"#!{prefix}/bin/python\nprint('run')\n"
    demo = (prefix / "bin/demo").read_text()
    assert demo.startswith(f"#!{prefix}/bin/python\n")
    done = run([sys.executable, prefix / "bin/demo"], env={"PYTHONPATH": str(prefix / SITE)})
    assert done.stdout == "hello\n"
    deep = (prefix / "bin/deep").read_text()
    assert "from demo import obj\n" in deep
    assert "obj.method()" in deep


def test_licences_are_laid_where_the_recipe_looks(tmp_path: Path, prefix: Path) -> None:
    assert (tmp_path / "src" / INFO / "licenses" / "LICENSE").read_bytes() == b"do as you like\n"


def test_noarch_packages_get_their_scripts_from_the_installer(tmp_path: Path) -> None:
    make(tmp_path / "src")
    assert install(tmp_path / "src", tmp_path / "prefix").returncode == 0
    assert {p.name for p in (tmp_path / "prefix/bin").iterdir()} == {"run-demo", "plain"}


def test_the_same_wheel_gives_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for attempt in ("one", "two"):
        prefix = tmp_path / attempt
        make(tmp_path / f"src-{attempt}")
        assert install(tmp_path / f"src-{attempt}", prefix, "--scripts").returncode == 0
        found.append(
            {n: (prefix / n).read_bytes().replace(bytes(prefix), b"") for n in files(prefix)}
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["../../evil", "demo-1.0.data/data/../../../evil"])
def test_a_file_outside_the_prefix_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "src").mkdir()
    make_wheel(tmp_path / "src", files={name: b"x"})
    done = install(tmp_path / "src", tmp_path / "a" / "b" / "prefix")
    assert done.returncode == 1
    assert "outside its folder" in done.stderr
    assert not list(tmp_path.rglob("evil"))


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """Of what is in the prefix before: the packages that the build stands on."""
    (tmp_path / "src").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "prefix").mkdir()
    (tmp_path / "prefix" / "share").symlink_to(tmp_path / "outside")
    make_wheel(tmp_path / "src", files={"demo-1.0.data/data/share/evil": b"x"})
    done = install(tmp_path / "src", tmp_path / "prefix")
    assert done.returncode == 1
    assert "error: share/evil would be written outside" in done.stderr
    assert not list((tmp_path / "outside").iterdir())


def test_a_file_does_not_change_what_a_link_leads_to(tmp_path: Path) -> None:
    site = tmp_path / "prefix" / SITE
    (site / "demo").mkdir(parents=True)
    (tmp_path / "other").write_text("other")
    (site / "demo" / "__init__.py").symlink_to(tmp_path / "other")
    make(tmp_path / "src")
    done = install(tmp_path / "src", tmp_path / "prefix")
    assert done.returncode == 1
    assert "error: demo/__init__.py is a link already" in done.stderr
    assert (tmp_path / "other").read_text() == "other"


def test_a_library_is_not_linked_outside(tmp_path: Path) -> None:
    """The folder is one that the library's own RUNPATH names."""
    library = tmp_path / "x.so"
    compiler = ["gcc", "-shared", "-xc", "-", "-o", str(library), "-Wl,--enable-new-dtags"]
    up = "-Wl,-rpath,$ORIGIN/../../../../../up"
    source = b'const char *name = "libextra.so.1";'
    subprocess.run([*compiler, up], input=source, check=True)
    (tmp_path / "src").mkdir()
    make_wheel(tmp_path / "src", files={"demo/x.so": library.read_bytes()})
    done = install(tmp_path / "src", tmp_path / "prefix", "--library", "libextra.so.1")
    assert done.returncode == 1
    assert "error: demo/x.so: its RUNPATH leads outside" in done.stderr
    assert not (tmp_path / "up").exists()


@pytest.mark.parametrize("name", ["demo-1.0.data/other/x", "demo-1.0.data/x"])
def test_a_scheme_that_nobody_knows_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "src").mkdir()
    make_wheel(tmp_path / "src", files={name: b"x"})
    done = install(tmp_path / "src", tmp_path / "prefix")
    assert done.returncode == 1
    assert done.stderr == f"error: the wheel has a file in no folder of a wheel: {name}\n"


@pytest.mark.parametrize("name", ["../../evil", "a/b"])
def test_a_script_has_a_plain_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "src").mkdir()
    make_wheel(tmp_path / "src", scripts=f"[console_scripts]\n{name} = demo:main\n")
    done = install(tmp_path / "src", tmp_path / "prefix", "--scripts")
    assert done.returncode == 1
    assert f"error: no name for a script: '{name}'" in done.stderr
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("count", [0, 2])
def test_one_wheel_is_wanted(tmp_path: Path, count: int) -> None:
    (tmp_path / "src").mkdir()
    for number in range(count):
        make_wheel(tmp_path / "src", version=str(number))
    done = install(tmp_path / "src", tmp_path / "prefix")
    assert done.returncode == 1
    assert f"holds {count} wheels, expected one" in done.stderr


@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
def test_absolute_rpaths_are_taken_out_of_libraries(tmp_path: Path, tags: str) -> None:
    library = tmp_path / "x.so"
    rpath = "-Wl,-rpath,/opt/builder/lib:$ORIGIN/../demo.libs:lib:$ORIGIN"
    compiler = ["gcc", "-shared", "-xc", "-", "-o", str(library), f"-Wl,{tags}"]
    source = b"int answer(void){return 42;}"
    subprocess.run([*compiler, rpath], input=source, check=True)
    (tmp_path / "src").mkdir()
    files = {"demo/x.so": library.read_bytes()}
    subprocess.run([*compiler, "-Wl,-rpath,/opt/only"], input=source, check=True)
    files |= {"demo/y.so": library.read_bytes(), "demo/z.so": b"\x7fELF\x01 not ours"}
    make_wheel(tmp_path / "src", files=files)
    ok(install(tmp_path / "src", tmp_path / "prefix"))
    site = tmp_path / "prefix" / SITE
    for name, expected in (("x", ("$ORIGIN/../demo.libs", "$ORIGIN")), ("y", ())):
        elf = read_elf((site / f"demo/{name}.so").read_bytes())
        assert elf is not None
        assert elf.rpaths == expected
        assert ctypes.CDLL(str(site / f"demo/{name}.so")).answer() == 42
        assert (site / f"demo/{name}.so").stat().st_size == len(files[f"demo/{name}.so"])
    assert (site / "demo/z.so").read_bytes() == files["demo/z.so"]


def test_what_has_a_runpath_finds_the_libraries_of_the_prefix(tmp_path: Path) -> None:
    """As torch's: the loader looks beside the file only, so the link beside it must be there."""
    prefix, site = tmp_path / "prefix", tmp_path / "prefix" / SITE
    (prefix / "lib").mkdir(parents=True)
    extra = prefix / "lib/libextra.so.1"
    compiler = ["gcc", "-shared", "-xc", "-", "-Wl,--enable-new-dtags"]
    subprocess.run(
        [*compiler, "-Wl,-soname,libextra.so.1", "-o", str(extra)],
        input=b"int extra(void){return 7;}",
        check=True,
    )
    files = {}
    for name, rpath in (("run", "$ORIGIN/../demo.libs"), ("none", "")):
        library = tmp_path / f"{name}.so"
        flags = [f"-Wl,-rpath,{rpath}"] if rpath else []
        subprocess.run(
            [*compiler, *flags, "-o", str(library), "-xc", "-", "-xnone", str(extra)],
            input=b"int extra(void); int answer(void){return extra();}",
            check=True,
        )
        files[f"demo/{name}.so"] = library.read_bytes()
    (tmp_path / "src").mkdir()
    make_wheel(tmp_path / "src", files=files)
    done = install(tmp_path / "src", prefix, "--library", "libextra.so.1", "--library", "libno.so")
    assert done.returncode == 0, done.stderr
    links = [path.relative_to(site) for path in site.rglob("*") if path.is_symlink()]
    assert links == [Path("demo.libs/libextra.so.1")]
    assert (site / links[0]).readlink() == Path("../../../libextra.so.1")
    program = f"import ctypes; print(ctypes.CDLL({str(site / 'demo/run.so')!r}).answer())"
    found = run([sys.executable, "-c", program])
    assert found.stdout == "7\n", found.stderr


def test_excluded_files_are_left_out(tmp_path: Path) -> None:
    make(tmp_path / "src")
    ok(install(tmp_path / "src", tmp_path / "prefix", "--exclude", "demo/t*"))
    site = tmp_path / "prefix" / SITE
    assert not (site / "demo/tool").exists()
    assert (site / "extra.py").exists()


def test_modules_are_compiled_for_the_time_of_their_files(tmp_path: Path) -> None:
    """So Python takes the bytecode as it is, and compiles again what somebody edits."""
    (tmp_path / "src").mkdir()
    bad = b"{{ a template }} is no module"
    hostile = b"raise SystemExit('code of the wheel was run')"
    files = {"demo/a.py": b"x = {'a', 'b'}\n", "demo/bad.py": bad, "py_compile.py": hostile}
    make_wheel(tmp_path / "src", files=files)
    made = []
    for name in ("one", "two"):
        ok(install(tmp_path / "src", tmp_path / name, "--compiler", sys.executable))
        site = tmp_path / name / SITE
        compiled = sorted(site.rglob("*.pyc"))
        made.append([(p.relative_to(site), p.read_bytes()) for p in compiled])
        assert {p.name.partition(".")[0] for p in compiled} == {"__init__", "a", "py_compile"}
        for path in compiled:
            source = Path(importlib.util.source_from_cache(str(path)))
            assert source.stat().st_mtime == EPOCH
            head = [int.from_bytes(path.read_bytes()[at : at + 4], "little") for at in (4, 8, 12)]
            assert head == [0, EPOCH, source.stat().st_size]  # PEP 552: checked by time and size
            assert str(tmp_path).encode() not in path.read_bytes()
    assert made[0] == made[1]


def test_a_compiler_that_does_not_run_is_named(tmp_path: Path) -> None:
    make(tmp_path / "src")
    done = install(tmp_path / "src", tmp_path / "prefix", "--compiler", "/bin/false")
    assert done.returncode != 0
    assert "/bin/false compiled nothing (exit code 1)" in done.stderr
