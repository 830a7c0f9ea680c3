"""The library under the address, undefined-behaviour and thread sanitizers (`make test-full`).

The unit tests as a whole; and the ranks' tests of everything that runs in threads or can fail, with
an instrumented libddl in the place of the environment's.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.libddl import build_unit_tests, run_unit_tests
from support.suites import run_suite

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(3600)]

FLAGS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    # It knows no fences (gcc says so), so may only see races there that are none.
    "thread": ["-fsanitize=thread", "-Wno-tsan"],
}
PARTS = {
    "address": ["test_async.py", "test_collectives.py", "test_failures.py"],
    # It carries out what __cxa_atexit has registered for no library without its argument, which the
    # program of the case "without finalize" needs.
    "thread": ["test_async.py", "-k", "not without"],
}

#: A sanitizer puts itself before malloc and mmap, and so does UCX below MPICH, unless told not to.
UCX = {
    "UCX_TLS": "tcp,self",
    "UCX_MEM_EVENTS": "no",
    "UCX_MEM_MMAP_HOOK_MODE": "none",
    "UCX_MEM_MALLOC_HOOKS": "no",
}
ADDR_NO_RANDOMIZE = 0x0040000  # sys/personality.h


@pytest.fixture(autouse=True)
def no_random_addresses() -> Iterator[None]:
    """As `setarch -R` for all that a test starts: the sanitizers want some addresses free."""
    libc = ctypes.CDLL(None)
    before = libc.personality(0xFFFFFFFF)
    libc.personality(before | ADDR_NO_RANDOMIZE)
    yield
    libc.personality(before)


@pytest.fixture(scope="module", params=FLAGS)
def instrumented(
    request: pytest.FixtureRequest, prefix: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The sanitizer's name and the folder of the build."""
    kind: str = request.param
    folder = tmp_path_factory.mktemp(kind)
    return kind, build_unit_tests(prefix, folder, "-g", "-fno-omit-frame-pointer", *FLAGS[kind])


def options(folder: Path) -> dict[str, str]:
    """For the sanitizers' run-time libraries."""
    quiet = folder / "suppressions"
    quiet.write_text("called_from_lib:libmpi.so\n")  # not instrumented: its locks are not seen
    return {
        **UCX,
        # Python and MPI keep memory until the end. An instrumented library comes late.
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": f"suppressions={quiet}:ignore_noninstrumented_modules=1:"
        "report_thread_leaks=0:halt_on_error=1",
    }


def test_unit_tests(instrumented: tuple[str, Path], tmp_path: Path) -> None:
    run_unit_tests(instrumented[1], **options(tmp_path))


def test_real_ranks(prefix: Path, instrumented: tuple[str, Path], tmp_path: Path) -> None:
    kind, build = instrumented
    runtime = f"lib{kind.replace('address', 'asan').replace('thread', 'tsan')}.so"
    # libstdc++ too: Python loads it late, and the sanitizer must see where exceptions begin.
    # libddl by name: the environment's RPATH goes before LD_LIBRARY_PATH.
    preload = [
        subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
        for name in (runtime, "libstdc++.so.6")
    ]
    variables = {**options(tmp_path), "LD_PRELOAD": ":".join([*preload, f"{build}/libddl.so.1"])}
    assert loaded(prefix, variables) == {build / "libddl.so.0.1.0"}
    arguments = (*PARTS[kind], "-m", "not slow")
    run_suite(prefix, "ddl/tests/ranks", tmp_path, *arguments, variables=variables)


def loaded(prefix: Path, variables: dict[str, str]) -> set[Path]:
    """The libddls that the environment's Python has loaded."""
    code = "import ddl; print(*{line.split()[-1] for line in open('/proc/self/maps')}, sep='\\n')"
    environment = clean_environment(prefix, os.environ) | variables
    text = subprocess.check_output(
        [prefix / "bin" / "python", "-c", code], env=environment, text=True
    )
    return {Path(line) for line in text.splitlines() if Path(line).name.startswith("libddl.so")}
