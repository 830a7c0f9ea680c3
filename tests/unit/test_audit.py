"""Each rule of the audit on a small real package that breaks it, and on one that does not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ddlce.audit import audit_index, audit_package, clobbered, unknown_dependencies
from ddlce.audit.facts import installed_path, read_info
from ddlce.elf import read_elf
from ddlce.engine.index import index_channel
from ddlce.errors import WorkError
from support.run import run
from support.synthetic import compile_c, make_package, rewrite

GLIBC = "__glibc >=2.36,<3.0.a0"


def build_library(prefix: Path, *flags: str) -> None:
    """libone.so.1 with its link, a header, and a text file that names no build path."""
    source = '#include <stdio.h>\nint one(void){return puts("one");}\n'
    library = prefix / "lib/libone.so.1"
    compile_c(library, source, "-shared", "-fPIC", "-Wl,-soname,libone.so.1", *flags)
    (prefix / "lib/libone.so").symlink_to("libone.so.1")
    (prefix / "share").mkdir()
    (prefix / "share/one.txt").write_text("one\n")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """The files of a package, to be broken before they are packed."""
    build_library(tmp_path / "prefix")
    return tmp_path / "prefix"


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    return tmp_path / "channel"


def pack(channel: Path, prefix: Path, name: str = "one", *depends: str) -> Path:
    package = make_package(channel / "linux-64", prefix, name, depends=depends or (GLIBC,))
    return rewrite(package, {"run_exports.json": {"weak": [f"{name} >=1.0,<2.0a0"]}})


def says(package: Path, **options: object) -> list[str]:
    return [str(finding) for finding in audit_package(package, **options)]  # type: ignore[arg-type]


def test_a_good_package_has_no_findings(channel: Path, prefix: Path) -> None:
    package = pack(channel, prefix)
    assert says(package, forbidden=[str(prefix)], channel=channel) == []
    assert says(package) == []


def test_index_json(channel: Path, prefix: Path) -> None:
    package = rewrite(pack(channel, prefix), {"index.json": {"version": "2.0", "subdir": "noarch"}})
    assert says(package) == [
        "index-json info/index.json: says one-2.0-h0_0, not one-1.0-h0_0",
        "index-json info/index.json: says noarch, not linux-64",
        "machine lib/libone.so.1: is compiled, in a noarch package",
    ]


def test_index_json_is_complete(channel: Path, prefix: Path) -> None:
    package = rewrite(pack(channel, prefix), {"index.json": []})
    found = says(package)
    assert found[0] == "index-json info/index.json: has no name"
    assert "index-json info/index.json: has no timestamp" in found


def test_about_json(channel: Path, prefix: Path) -> None:
    package = rewrite(pack(channel, prefix), {"about.json": {"summary": "", "home": []}})
    assert says(package) == [
        "about-json info/about.json: has no home",
        "about-json info/about.json: has no summary",
    ]


@pytest.mark.parametrize("text", [None, ""])
def test_a_package_without_a_licence_text(channel: Path, prefix: Path, text: str | None) -> None:
    package = make_package(channel / "linux-64", prefix, "one", depends=(GLIBC,), license_text=text)
    rewrite(package, {"run_exports.json": {"weak": ["one"]}})
    assert says(package) == ["licence-file info/licenses: holds no licence text"]


def test_paths_json(channel: Path, prefix: Path) -> None:
    package = rewrite(
        pack(channel, prefix),
        payload={"share/one.txt": b"two\n", "share/more": b"more", "lib/libone.so": None},
    )
    assert says(package) == [
        "paths-json lib/libone.so: not in the package",
        "paths-json share/more: not in paths.json",
        "paths-json share/one.txt: has another sha256",
    ]


def test_paths_json_sizes_and_types(channel: Path, prefix: Path) -> None:
    package = rewrite(
        pack(channel, prefix), payload={"share/one.txt": b"three\n", "lib/libone.so": b"no link"}
    )
    assert says(package) == [
        "paths-json lib/libone.so: is a hardlink, not a softlink",
        "paths-json share/one.txt: has 6 bytes, not 4",
        "paths-json share/one.txt: has another sha256",
    ]


def test_links_that_lead_out_or_nowhere(channel: Path, prefix: Path) -> None:
    (prefix / "share/absolute").symlink_to("/etc/passwd")
    (prefix / "share/out").symlink_to("../../x")
    (prefix / "share/nowhere").symlink_to("nothing")
    (prefix / "share/folder").symlink_to("../lib")
    assert says(pack(channel, prefix), channel=channel) == [
        "link share/absolute: leads out of the prefix, to /etc/passwd",
        "link share/nowhere: leads to nothing, which is not there",
        "link share/out: leads out of the prefix, to ../../x",
    ]


def build_for_power(prefix: Path, *flags: str) -> None:
    compiler = "powerpc64le-linux-gnu-gcc"
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed (ddlce doctor names its package)")
    library = prefix / "lib/libone.so.1"
    library.unlink()
    source = "int one(void){return 1;}\n"
    compile_c(library, source, "-shared", "-fPIC", "-nostdlib", *flags, compiler=compiler)


def test_a_library_of_another_processor(channel: Path, prefix: Path) -> None:
    build_for_power(prefix)
    assert says(pack(channel, prefix)) == [
        "machine lib/libone.so.1: is for EM_PPC64, not for linux-64"
    ]


def test_pages_of_64_kib(channel: Path, prefix: Path) -> None:
    build_for_power(prefix, "-Wl,-z,max-page-size=4096", "-Wl,-z,common-page-size=4096")
    assert says(pack(channel, prefix))[1:] == [
        "page-size lib/libone.so.1: is aligned for pages of 4096 bytes, not 65536"
    ]


def test_a_compiled_package_is_checked_beside_those_of_its_platform(
    channel: Path, prefix: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    build_library(other)
    make_package(channel / "linux-ppc64le", other, "base")
    (prefix / "share/link").symlink_to("../share/one.txt")
    (prefix / "share/one.txt").unlink()
    package = pack(channel, prefix, "two", GLIBC, "base")
    assert says(package, channel=channel) == [
        "link share/link: leads to ../share/one.txt, which is not there"
    ]
    make_package(channel / "linux-64", other, "base")
    assert says(package, channel=channel) == []


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o666])
def test_modes_that_no_file_may_have(channel: Path, prefix: Path, mode: int) -> None:
    package = rewrite(pack(channel, prefix), modes={"share/one.txt": mode})
    assert says(package) == [f"permissions share/one.txt: has mode {mode:o}"]


def test_build_paths_in_text_and_binaries(channel: Path, prefix: Path) -> None:
    build = "/srv/cache/build/one-123"
    (prefix / "share/one.pc").write_text(f"prefix={build}/out\n")
    compile_c(prefix / "bin/where", f'int puts(char*);int main(){{return puts("{build}/x");}}')
    (prefix / "share/mark").write_text("/x/bld/rattler-build_one/work\n")
    assert says(pack(channel, prefix), forbidden=[build, "/nothing"]) == [
        f"build-path bin/where: holds the build folder {build}",
        "build-path share/mark: holds the build folder /rattler-build_",
        f"build-path share/one.pc: holds the build folder {build}",
    ]


def test_placeholders_that_are_not_as_registered(channel: Path, prefix: Path) -> None:
    pad = "/opt/" + "placehold_" * 20
    (prefix / "share/good").write_text(f"{pad}/lib\n")
    (prefix / "share/absent").write_text("x\n")
    (prefix / "share/binary").write_bytes(f"{pad}\0".encode())
    (prefix / "share/unregistered").write_text(f"{pad}/lib\n")
    package = pack(channel, prefix)
    paths = [
        {"_path": path, "path_type": "hardlink", "prefix_placeholder": pad, "file_mode": "text"}
        for path in ("share/good", "share/absent", "share/binary")
    ]
    rewrite(package, {"paths.json": {"paths": paths}})
    assert [s for s in says(package) if s.startswith(("placeholder", "build-path"))] == [
        "build-path share/unregistered: holds the build folder placehold_placehold",
        "placeholder share/absent: is registered, but the prefix is not in it",
        "placeholder share/binary: is binary, but registered as text",
    ]


def test_a_library_for_another_platform(channel: Path, prefix: Path) -> None:
    package = make_package(channel / "linux-ppc64le", prefix, "one", depends=(GLIBC,))
    assert [s for s in says(package) if s.startswith("machine")] == [
        "machine lib/libone.so.1: is for EM_X86_64, not for linux-ppc64le"
    ]


def test_rpaths_that_leave_the_prefix(channel: Path, prefix: Path) -> None:
    main = "int main(void){return 0;}"
    for name, rpath in {
        "good": "$ORIGIN/../lib",
        "braces": "${ORIGIN}/../lib",
        "absolute": "/usr/lib",
        "relative": "lib",
        "out": "$ORIGIN/../../lib",
    }.items():
        compile_c(prefix / "bin" / name, main, f"-Wl,-rpath,{rpath}")
    assert says(pack(channel, prefix)) == [
        "rpath bin/absolute: has the rpath /usr/lib; use $ORIGIN",
        "rpath bin/out: has the rpath $ORIGIN/../../lib, out of the prefix",
        "rpath bin/relative: has the rpath lib; use $ORIGIN",
    ]


@pytest.fixture
def user(tmp_path: Path, channel: Path, prefix: Path) -> Path:
    """The prefix of a second package, whose program needs libone of the first."""
    pack(channel, prefix)
    folder = tmp_path / "user"
    source = "int one(void);int main(void){return one();}"
    compile_c(folder / "bin/user", source, f"-L{prefix}/lib", "-lone", "-Wl,-rpath,$ORIGIN/../lib")
    return folder


def test_a_library_of_a_dependency_is_found(channel: Path, user: Path) -> None:
    assert says(pack(channel, user, "user", GLIBC, "one >=1.0"), channel=channel) == []


def test_a_library_of_an_undeclared_package(channel: Path, user: Path) -> None:
    assert says(pack(channel, user, "user"), channel=channel) == [
        "needed bin/user: needs libone.so.1, which is nowhere"
    ]


def test_a_library_that_only_a_dependency_depends_on(
    channel: Path, user: Path, tmp_path: Path
) -> None:
    (tmp_path / "middle/share").mkdir(parents=True)
    (tmp_path / "middle/share/middle").write_text("x")
    pack(channel, tmp_path / "middle", "middle", "one")
    assert says(pack(channel, user, "user", GLIBC, "middle"), channel=channel) == [
        "needed bin/user: needs libone.so.1 of one, which is not in depends"
    ]


def test_a_library_that_no_rpath_leads_to(channel: Path, user: Path) -> None:
    (user / "libexec/deep").mkdir(parents=True)
    shutil.move(user / "bin/user", user / "libexec/deep/user")
    assert says(pack(channel, user, "user", GLIBC, "one"), channel=channel) == [
        "needed libexec/deep/user: needs libone.so.1, which is in one, where no rpath leads"
    ]


def test_the_audit_agrees_with_the_loader(channel: Path, user: Path, prefix: Path) -> None:
    """What the audit accepts runs, and what it refuses does not: asked of ld.so itself."""
    shutil.copy(prefix / "lib/libone.so.1", user.parent / "copy.so")
    (user / "lib").mkdir()
    program = user / "bin/user"
    assert run([program]).returncode == 127
    shutil.copy(prefix / "lib/libone.so.1", user / "lib/libone.so.1")
    assert run([program]).returncode != 127
    assert says(pack(channel, user, "user"), channel=channel) == []


def test_a_library_that_only_the_machine_has(channel: Path, prefix: Path) -> None:
    (prefix / "lib/libone.so.1").unlink()
    source = '#include <stdio.h>\nint two(void){return puts("");}'
    empty = prefix.parent / "machine/libz.so.1"
    compile_c(empty, "int z;", "-shared", "-Wl,-soname,libz.so.1")
    compile_c(
        prefix / "lib/libone.so.1",
        source,
        "-shared",
        "-fPIC",
        "-Wl,-soname,libone.so.1",
        "-Wl,--no-as-needed",
        "-xnone",
        str(empty),
    )
    assert says(pack(channel, prefix), channel=channel) == [
        "needed lib/libone.so.1: needs libz.so.1, which is nowhere"
    ]


def test_run_exports(channel: Path, prefix: Path) -> None:
    package = make_package(channel / "linux-64", prefix, "one", depends=(GLIBC,))
    assert says(package) == [
        "run-exports lib/libone.so.1: can be linked to, but run_exports is empty"
    ]
    (prefix / "lib/libone.so").unlink()  # nothing can link to what has no development name
    assert says(make_package(channel / "linux-64", prefix, "one", depends=(GLIBC,))) == []


def test_objects_and_broken_files_are_not_programs(prefix: Path) -> None:
    compile_c(prefix / "share/x.o", "int x;", "-c")
    assert read_elf((prefix / "share/x.o").read_bytes()) is None
    assert read_elf(b"\x7fELF broken") is None


def test_an_unreadable_package_is_a_designed_error(channel: Path, prefix: Path) -> None:
    package = pack(channel, prefix)
    package.write_bytes(package.read_bytes()[:300])
    with pytest.raises(WorkError, match="cannot be read") as caught:
        audit_package(package)
    assert caught.value.hint == "build the package again"


def test_two_packages_with_one_path(channel: Path, prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "py/site-packages/m").mkdir(parents=True)
    (tmp_path / "py/site-packages/m/a.py").write_text("a")
    (tmp_path / "arch/lib/python3.11/site-packages/m").mkdir(parents=True)
    (tmp_path / "arch/lib/python3.11/site-packages/m/a.py").write_text("b")
    (tmp_path / "arch/bin").mkdir()
    (tmp_path / "arch/bin/tool").write_text("tool")
    noarch = make_package(channel / "noarch", tmp_path / "py", "pure")
    point = {"noarch": {"type": "python", "entry_points": ["tool = m.a:main"]}}
    rewrite(noarch, {"link.json": point})
    infos = [
        read_info(p, "3.11")
        for p in (pack(channel, prefix), noarch, pack(channel, tmp_path / "arch", "arch"))
    ]
    assert [str(finding) for finding in clobbered(infos)] == [
        "clobber bin/tool: is in pure and in arch",
        "clobber lib/python3.11/site-packages/m/a.py: is in pure and in arch",
    ]
    assert clobbered(infos[:2]) == []
    assert installed_path("python-scripts/x", "3.11") == "bin/x"
    assert installed_path("site-packages/x.py", "3.13") == "lib/python3.13/site-packages/x.py"


def test_unknown_dependencies(channel: Path, prefix: Path) -> None:
    one = read_info(pack(channel, prefix))
    two = read_info(pack(channel, prefix, "two", GLIBC, "one >=1", "three"))
    assert [str(finding) for finding in unknown_dependencies([one, two])] == [
        "depends two-1.0-h0_0.conda: depends on three, which the channel does not have"
    ]


def test_the_index(channel: Path, prefix: Path) -> None:
    package = pack(channel, prefix)
    index_channel(channel)
    assert audit_index(channel / "linux-64") == []
    assert audit_index(channel / "noarch") == []

    shutil.copy(package, package.with_name("two-1.0-h0_0.conda"))
    index = channel / "linux-64/repodata.json"
    text = index.read_text()
    index.write_text(text.replace('"one"', '"uno"').replace(package.name, package.name, 1))
    assert [str(finding) for finding in audit_index(channel / "linux-64")] == [
        "index linux-64/repodata.json.zst: differs from repodata.json",
        f"index linux-64/{package.name}: the index says name uno, not one",
    ]
    package.with_name("two-1.0-h0_0.conda").unlink()
    index.write_text(text)
    (channel / "linux-64/repodata.json.zst").unlink()
    with package.open("ab") as stream:
        stream.write(b"\0")
    found = [str(finding) for finding in audit_index(channel / "linux-64")]
    assert found[0] == "index linux-64/repodata.json.zst: is missing"
    assert [line.split(": ")[1].split()[3] for line in found[1:]] == ["size", "sha256", "md5"]
    os.unlink(package)  # noqa: PTH108
    assert str(audit_index(channel / "linux-64")[1]) == (
        f"index linux-64/{package.name}: is in the index, but not in the folder"
    )
