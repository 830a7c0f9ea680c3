"""libddl's element loops for POWER: cross-compiled, and their C++ tests run under emulation.

The whole library is built and run so by `make ppc64le`; this is the part of it that is POWER's own.
"""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ddlce.emulate import emulated, ensure_sysroot
from ddlce.platforms import PLATFORMS
from ddlce.settings import load_settings
from support.run import ok
from support.run import run as run_program

POWER = "linux-ppc64le"
COMPILER = "powerpc64le-linux-gnu-g++"
DDL = Path(__file__).parents[2] / "recipes" / "ddl"
GOOGLETEST = Path("/usr/src/googletest/googletest")

#: As in libddl's CMakeLists.txt.
LOOPS = ("-O3", "-fno-trapping-math", "-fno-math-errno")
OPTIONS = {"kernels_generic.cc": LOOPS, "kernels_power9.cc": (*LOOPS, "-mcpu=power9")}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no {COMPILER}: ddlce doctor"),
    pytest.mark.skipif(
        not any(map(shutil.which, PLATFORMS[POWER].emulators)), reason="no qemu-user: make ppc64le"
    ),
    pytest.mark.skipif(not GOOGLETEST.is_dir(), reason=f"no {GOOGLETEST}: libgtest-dev"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests of the loops, linked with nothing of C++ that the emulated machine would need."""
    folder = tmp_path_factory.mktemp("kernels")
    sources = [
        *sorted((DDL / "src/lib/reduce").glob("kernels*.cc")),
        DDL / "src/lib/base/types.cc",
        DDL / "tests/cpp/kernels_test.cc",
        *(GOOGLETEST / "src" / name for name in ("gtest-all.cc", "gtest_main.cc")),
    ]

    def compiled(source: Path) -> str:
        made = str(folder / f"{source.stem}.o")
        headers = (f"-I{DDL}/src/lib", f"-I{DDL}/src/include")
        outside = ("-isystem", f"{GOOGLETEST}/include", f"-I{GOOGLETEST}")
        flags = ("-std=c++20", "-O1", "-Wall", "-Wextra", *OPTIONS.get(source.name, ()))
        run(COMPILER, *flags, *headers, *outside, "-c", str(source), "-o", made)
        return made

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources))
    path = folder / "kernels_test"
    run(COMPILER, "-static-libstdc++", "-static-libgcc", *objects, "-o", str(path), "-pthread")
    return path


def run(*command: str, **environ: str) -> str:
    env = {**os.environ, **environ}
    done = ok(run_program(command, env=env))
    return done.stdout


@pytest.mark.parametrize(("processor", "sets"), [("power8", 1), ("power9", 2), ("power10", 2)])
def test_every_loop_that_the_processor_has_is_right(
    program: Path, processor: str, sets: int
) -> None:
    sysroot = ensure_sysroot(load_settings(), POWER)
    said = run(*emulated([str(program)], POWER, sysroot), QEMU_CPU=processor)
    instances = set(re.findall(r"\[       OK \] (\S+?)/KernelsTest\.\S+/(\S+)", said))
    assert len(instances) == sets, said[-4000:]
    assert "[  PASSED  ]" in said
