"""libddl's element loops on other processors: cross-compiled, and their C++ tests run under qemu.

The whole library is built and run so by `make ppc64le` and `make aarch64`; this is the part of it
that knows processors.
"""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ddlce.emulate import emulated, ensure_sysroot
from ddlce.platforms import BUILD_PLATFORM, PLATFORMS
from ddlce.settings import load_settings
from support.builtpackages import unpack_built
from support.run import ok, run

DDL = Path(__file__).parents[2] / "recipes" / "ddl"
GOOGLETEST = Path("/usr/src/googletest/googletest")

#: As in libddl's CMakeLists.txt.
LOOPS = ("-O3", "-fno-trapping-math", "-fno-math-errno")
OPTIONS = {
    ("kernels_generic.cc", "linux-ppc64le"): LOOPS,
    ("kernels_power9.cc", "linux-ppc64le"): (*LOOPS, "-mcpu=power9"),
    ("kernels_generic.cc", "linux-aarch64"): LOOPS,
    ("kernels_bf16.cc", "linux-aarch64"): (*LOOPS, "-march=armv8.2-a+bf16"),
    ("kernels_sve.cc", "linux-aarch64"): (*LOOPS, "-march=armv8.2-a+sve"),
}

#: Processors by qemu's names, and the sets of loops that each has. Graviton 3 has SVE's vectors of
#: 256 bits, A64FX of 512; Grace's are of 128, no wider than NEON's.
CASES = [
    ("linux-ppc64le", "power8", {"generic"}),
    ("linux-ppc64le", "power9", {"generic", "power9"}),
    ("linux-ppc64le", "power10", {"generic", "power9"}),
    ("linux-aarch64", "cortex-a72", {"generic"}),
    ("linux-aarch64", "max,sve=off", {"generic", "bf16"}),
    ("linux-aarch64", "max,sve128=on,sve256=off", {"generic", "bf16"}),
    ("linux-aarch64", "max,sve256=on,sve512=off", {"generic", "bf16", "sve"}),
    ("linux-aarch64", "a64fx", {"generic", "sve"}),
]

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not GOOGLETEST.is_dir(), reason=f"no {GOOGLETEST}: libgtest-dev"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def kernels_test(platform: str, folder: Path) -> tuple[Path, Path]:
    """The program of the loops' tests, compiled by the release's cross compiler; its libraries."""
    libraries = folder / platform
    program = folder / f"{platform}-kernels_test"
    if program.exists():
        return program, libraries / "lib"
    compilers = ("runtime_linux-64", f"gcc_impl_{platform}", f"gxx_impl_{platform}")
    unpack_built(platform, folder / "build", *compilers, subdir=BUILD_PLATFORM)
    unpack_built(platform, libraries, "libgcc", "libstdcxx")
    compiler = folder / "build" / PLATFORMS[platform].triple / "gcc/bin/g++"
    sources = [
        *sorted((DDL / "src/lib/reduce").glob("kernels*.cc")),
        DDL / "src/lib/base/types.cc",
        DDL / "tests/cpp/kernels_test.cc",
        *(GOOGLETEST / "src" / name for name in ("gtest-all.cc", "gtest_main.cc")),
    ]

    def compiled(source: Path) -> str:
        made = str(folder / f"{platform}-{source.stem}.o")
        headers = (f"-I{DDL}/src/lib", f"-I{DDL}/src/include")
        outside = ("-isystem", f"{GOOGLETEST}/include", f"-I{GOOGLETEST}")
        flags = ("-std=c++20", "-O1", "-Wall", "-Wextra", *OPTIONS.get((source.name, platform), ()))
        ok(run([compiler, *flags, *headers, *outside, "-c", source, "-o", made]))
        return made

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources))
    ok(run([compiler, *objects, f"-L{libraries}/lib", "-o", program, "-pthread"]))
    return program, libraries / "lib"


@pytest.mark.parametrize(
    ("platform", "processor", "tables"), CASES, ids=[processor for _, processor, _ in CASES]
)
def test_every_loop_that_the_processor_has_is_right(
    folder: Path, platform: str, processor: str, tables: set[str]
) -> None:
    emulators = PLATFORMS[platform].emulators
    if not any(map(shutil.which, emulators)):
        pytest.skip(f"no {emulators[0]}: ddlce doctor")
    program, libraries = kernels_test(platform, folder)
    sysroot = ensure_sysroot(load_settings(), platform)
    env = {**os.environ, "QEMU_CPU": processor, "LD_LIBRARY_PATH": str(libraries)}
    said = ok(run(emulated([str(program)], platform, sysroot), env=env)).stdout
    assert "[  PASSED  ]" in said
    assert set(re.findall(r"\[       OK \] \S+?/KernelsTest\.\S+/(\S+)", said)) == tables
