"""Horovod 0.28.1 as its authors left it compiles against our ddl.hpp: DDL's interface is the same.

Its DDL operations are for GPUs, so they run only where one is; what they call is in our library.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.horovod_source import compile_file, include_options, unpack
from support.pip import Unavailable
from support.run import ok

pytestmark = [pytest.mark.built, pytest.mark.timeout(600)]

OPERATIONS = "horovod/common/ops/ddl_operations.cc"
CONTEXT = "horovod/common/mpi/ddl_mpi_context_manager.cc"
#: Upstream's own: its function takes four arguments, and elastic training has another function
#: (WaitForEventsElastic). Whoever changed that left this call with five.
CALL = "WaitForEvents(gpu_op_context_.event_queue, entries, timeline, nullptr, "
CALL_TODAY = "WaitForEvents(gpu_op_context_.event_queue, entries, timeline, nullptr"
REST = "global_state_->elastic_enabled);"


@pytest.fixture(scope="module")
def horovod(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its locked source, without our patches."""
    return unpack(tmp_path_factory.mktemp("horovod"))


@pytest.fixture(scope="module")
def options(prefix: Path, horovod: Path) -> list[str]:
    """As Horovod's own build with HOROVOD_GPU_ALLREDUCE=DDL has them."""
    try:
        includes = include_options(prefix, horovod)
    except Unavailable as error:
        pytest.skip(str(error))
    return [*(f"-DHAVE_{part}=1" for part in ("MPI", "GPU", "CUDA", "DDL")), *includes]


def undefined(made: Path) -> set[str]:
    """Functions of DDL that an object file wants."""
    words = subprocess.check_output(["nm", "-u", made], text=True).split()
    return {word for word in words if word.startswith("ddl_")}


def test_the_only_error_is_upstream_s_own(
    horovod: Path, options: list[str], tmp_path: Path
) -> None:
    done = compile_file(horovod, options, OPERATIONS, tmp_path / "operations.o")
    assert done.returncode == 1, done.stderr
    (error,) = re.findall(r"^(\S+):(\d+):\d+: error: (.*)$", done.stderr, re.M)
    assert error[0] == OPERATIONS
    assert "GPUContext::WaitForEvents(" in error[2]
    assert (CALL + REST) in (horovod / OPERATIONS).read_text().splitlines()[int(error[1]) - 1]


@pytest.mark.slow
def test_everything_else_compiles_and_is_in_the_library(
    prefix: Path, horovod: Path, options: list[str], tmp_path: Path
) -> None:
    ok(compile_file(horovod, options, CONTEXT, tmp_path / "context.o"))

    mended = horovod / OPERATIONS.replace("ddl_operations", "ddl_operations_mended")
    text = (horovod / OPERATIONS).read_text()
    assert text.count(CALL + REST) == 1
    mended.write_text(text.replace(CALL + REST, CALL_TODAY + ");"))
    ok(compile_file(horovod, options, str(mended), tmp_path / "operations.o"))

    wanted = undefined(tmp_path / "context.o") | undefined(tmp_path / "operations.o")
    assert wanted == {"ddl_init", "ddl_finalize", "ddl_allreduce"}
    library = prefix / "lib" / "libddl.so.1"
    symbols = subprocess.check_output(["nm", "-D", "--defined-only", library], text=True).split()
    assert wanted <= set(symbols)
