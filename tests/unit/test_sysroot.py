"""The sysroot of linux-64: its archive, its stub libraries and its headers."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from threading import Event

import pytest
from headers import limit, younger
from stubs import limited, make_stub
from symbols import Symbol, parse, read_library

from ddlce.errors import DdlceError
from ddlce.settings import load_settings
from ddlce.sources.apt import Apt
from ddlce.sources.client import DownloadError
from support.run import ok, run

ROOM = Path(__file__).parents[2] / "recipes/base/sysroot_linux-64"
ARCHIVE = ROOM / "glibc-2.31.tar.xz"

#: What the archive was made from, in Debian's archive of security updates.
PACKAGES = {
    "glibc/libc6_2.31-13+deb11u14": (
        "718e3ed8c92207caf5b541e7332affad4f62501cbab3f0cffbe9e6db0b89eae9"
    ),
    "glibc/libc6-dev_2.31-13+deb11u14": (
        "7d4002192e09c3cc97f31dcc85ecd7741adbec9011abbdd14fb1790cab20bffa"
    ),
    "linux/linux-libc-dev_5.10.262-1": (
        "77e61a88d14b5dabfea170587fc2cb1020b950c6326d54915f54c4f16fb819e8"
    ),
}


def script(name: str, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run(
        [sys.executable, "-B", ROOM / "scripts" / name, *arguments],
        env=os.environ | {"CC": "gcc"} | env,
    )


def symbol(line: str) -> Symbol:
    found = parse(line)
    assert str(found) == line
    return found


def contents(archive: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {
            member.name: hashlib.sha256(stream.read()).hexdigest()
            for member in tar
            if (stream := tar.extractfile(member))
        }


def test_the_archive_is_made_of_debians_packages(tmp_path: Path) -> None:
    apt = Apt(load_settings().cache / "apt", "amd64")
    debs = []
    for name, sha256 in PACKAGES.items():
        folder, file = name.split("/")
        pool = f"pool/updates/main/{folder[0]}/{folder}/{file}_amd64.deb"
        target = tmp_path / f"{file}_amd64.deb"
        try:
            debs.append(apt.from_pool(pool, sha256, target, lambda _: None, Event()))
        except (DownloadError, DdlceError) as error:
            pytest.skip(f"Debian 11's {file} cannot be had any more: {error}")
    ok(script("collect.py", tmp_path / ARCHIVE.name, *debs))
    assert contents((tmp_path / ARCHIVE.name).read_bytes()) == contents(ARCHIVE.read_bytes())
    for licence in (tmp_path / "copyright").iterdir():
        assert licence.read_bytes() == (ROOM / "copyright" / licence.name).read_bytes()


def test_other_packages_make_no_archive(tmp_path: Path) -> None:
    done = script("collect.py", tmp_path / "x.tar.xz", tmp_path / "libc6_2.31_amd64.deb")
    assert done.returncode == 1
    assert done.stderr == (
        "collect.py: libc6: give a .deb of each of libc6, libc6-dev, linux-libc-dev\n"
    )


@pytest.mark.parametrize(
    ("floor", "message"),
    [
        ("2.17", "glibc 2.17 is older than 2.28, down to which the headers are known"),
        ("new", "new: no release of glibc; mend c_stdlib_version in recipes/conda_build"),
    ],
)
def test_a_floor_that_cannot_be_made(tmp_path: Path, floor: str, message: str) -> None:
    done = script("sysroot.py", floor, ARCHIVE, tmp_path / "root")
    assert done.returncode == 1
    assert message in done.stderr
    assert "c_stdlib_version in recipes/conda_build_config.yaml" in done.stderr
    assert not (tmp_path / "root").exists()


def test_a_younger_default_gives_way_to_the_one_before() -> None:
    table = [
        symbol("gettid@@GLIBC_2.30 FUNC GLOBAL"),
        symbol("pow@@GLIBC_2.29 FUNC WEAK"),
        symbol("pow@GLIBC_2.2.5 FUNC WEAK"),
        symbol("memcpy@@GLIBC_2.14 FUNC GLOBAL"),
        symbol("memcpy@GLIBC_2.2.5 FUNC GLOBAL"),
        symbol("removed@GLIBC_2.2.5 FUNC GLOBAL"),
    ]
    assert [str(s).split()[0] for s in limited(table, "2.28")] == [
        "memcpy@@GLIBC_2.14",
        "memcpy@GLIBC_2.2.5",
        "pow@@GLIBC_2.2.5",
        "removed@GLIBC_2.2.5",
    ]
    assert younger(table, "2.28") == {"gettid"}
    assert younger(table, "2.30") == set()


def test_a_stub_has_the_symbols_of_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_RUN_PATH", "/build/lib")
    table = sorted(
        [
            symbol("both@@V_2 FUNC GLOBAL"),
            symbol("both@V_1.5 FUNC GLOBAL"),
            symbol("value@@V_2 OBJECT GLOBAL 40 8"),
            symbol("same@@V_2 OBJECT WEAK 40 8"),
            symbol("apart@@V_2 OBJECT GLOBAL 48 16"),
            symbol("local@@V_2 TLS GLOBAL 0 4"),
        ]
    )
    make_stub(table, "libstub.so.1", tmp_path, "gcc")
    found = read_library(tmp_path / "libstub.so.1")
    assert [(s.name, s.version, s.default, s.kind, s.weak, s.size) for s in found] == [
        (s.name, s.version, s.default, s.kind, s.weak, s.size) for s in table
    ]
    places = {s.name: s.address for s in found}
    assert places["value"] == places["same"] != places["apart"]
    first = (tmp_path / "libstub.so.1").read_bytes()
    make_stub(table, "libstub.so.1", tmp_path, "gcc")
    assert (tmp_path / "libstub.so.1").read_bytes() == first
    assert b"/build/lib" not in first, "the linker took a path of the environment"


HEADER = """\
extern int older (int) __THROW;
#ifdef __USE_GNU
/* A comment; with a semicolon.  */
extern int younger_one (struct s *__restrict a,
                        int (*call) (void *)) __THROW __nonnull ((1));
extern int younger_one_more (int);
#endif
"""


def test_younger_declarations_are_taken_out(tmp_path: Path) -> None:
    (tmp_path / "bits").mkdir()
    (tmp_path / "one.h").write_text(HEADER)
    (tmp_path / "features.h").write_text("#define\t__GLIBC_MINOR__\t31\n")
    calls = "__MATHDECL_1 (int, totalorder,, (const _Mdouble_ *__x,\n const _Mdouble_ *__y));\n"
    (tmp_path / "bits/mathcalls.h").write_text(calls)
    limit(tmp_path, [symbol("younger_one@@GLIBC_2.30 FUNC GLOBAL")], "2.28")
    text = (tmp_path / "one.h").read_text()
    assert "struct s" not in text
    assert "younger_one: after 2.28" in text
    assert "extern int older (int) __THROW;" in text
    assert "extern int younger_one_more (int);" in text
    assert (tmp_path / "features.h").read_text() == "#define\t__GLIBC_MINOR__\t28\n"
    assert "__MATHDECL" not in (tmp_path / "bits/mathcalls.h").read_text()


def test_a_younger_function_without_a_declaration_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.h").write_text(HEADER)
    with pytest.raises(SystemExit, match=r"nowhere: newer than glibc 2\.28, but no header"):
        limit(tmp_path, [symbol("nowhere@@GLIBC_2.29 FUNC GLOBAL")], "2.28")


@pytest.mark.parametrize("floor", ["2.28", "2.29", "2.30", "2.31", "2.34"])
def test_one_archive_makes_the_sysroots_of_all_floors(tmp_path: Path, floor: str) -> None:
    """Above the archive's own release, what is of that one."""
    root = tmp_path / "root"
    ok(script("sysroot.py", floor, ARCHIVE, root))
    features = (root / "usr/include/features.h").read_text()
    headers = min(floor, "2.31")
    assert f"__GLIBC_MINOR__\t{headers[2:]}" in features
    versions = {s.version for lib in (root / "lib").glob("*.so.[0-9]*") for s in read_library(lib)}
    newest = max(tuple(map(int, v.removeprefix("GLIBC_").split("."))) for v in versions)
    assert newest == tuple(map(int, headers.split(".")))
    gettid = "extern __pid_t gettid" in (root / "usr/include/bits/unistd_ext.h").read_text()
    assert gettid == (headers in ("2.30", "2.31"))
