"""The library under the address, undefined-behaviour and thread sanitizers (`make test-full`).

The unit tests as a whole; and the ranks' tests of everything that runs in threads or can fail, with
an instrumented libddl in the place of the environment's.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

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
    "thread": ["test_async.py"],
}


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
    preload = [
        subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
        for name in (runtime, "libstdc++.so.6")
    ]
    run_suite(
        prefix,
        "ddl/tests/ranks",
        tmp_path,
        *(*PARTS[kind], "-m", "not slow"),
        variables={
            **options(tmp_path),
            "LD_PRELOAD": ":".join(preload),
            "LD_LIBRARY_PATH": str(build),
        },
    )
