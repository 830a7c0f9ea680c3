"""Horovod 0.28.1 as its authors left it compiles against our ddl.hpp: DDL's interface is the same.

Its DDL operations are for GPUs, so they run only where one is; what they call is in our library.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from bench.lab.peers.base import Unavailable
from bench.lab.peers.install import pip_prefix
from ddlce.model.source import SourcesLock
from ddlce.settings import load_settings
from ddlce.sources.store import SourceStore

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
    settings = load_settings()
    lock = SourcesLock.load(settings.tree / "sources.lock")
    (source,) = [s for s in lock.sources if s.file == "horovod-0.28.1.tar.gz"]
    store = SourceStore(settings.sources)
    store.verify(source)
    folder = tmp_path_factory.mktemp("horovod")
    with tarfile.open(store.path(source)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "horovod-0.28.1"


@pytest.fixture(scope="module")
def includes(prefix: Path, horovod: Path) -> list[str]:
    """Our headers and MPI's, CUDA's, and what Horovod brings along."""
    try:
        (cuda,) = pip_prefix("cuda").glob("lib/python3*/site-packages/nvidia")
    except Unavailable as error:
        pytest.skip(str(error))
    third_party = horovod / "third_party"
    folders = [
        prefix / "include",
        *(cuda / part / "include" for part in ("cuda_runtime", "cuda_nvcc", "cuda_cccl")),
        *sorted(third_party.glob("*/include")),
        *sorted(third_party.glob("boost/*/include")),
        third_party / "eigen",
    ]
    return [word for folder in folders for word in ("-isystem", str(folder))]


def compile_it(
    horovod: Path, includes: list[str], source: str, made: Path
) -> subprocess.CompletedProcess[str]:
    """Compile one of Horovod's files as its own build with HOROVOD_GPU_ALLREDUCE=DDL does."""
    parts = [f"-DHAVE_{part}=1" for part in ("MPI", "GPU", "CUDA", "DDL")]
    return subprocess.run(
        ["g++", "-std=c++17", "-fPIC", "-w", *parts, *includes, "-c", source, "-o", str(made)],
        cwd=horovod,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        check=False,
    )


def undefined(made: Path) -> set[str]:
    """Functions of DDL that an object file wants."""
    words = subprocess.check_output(["nm", "-u", made], text=True).split()
    return {word for word in words if word.startswith("ddl_")}


def test_the_only_error_is_upstream_s_own(
    horovod: Path, includes: list[str], tmp_path: Path
) -> None:
    done = compile_it(horovod, includes, OPERATIONS, tmp_path / "operations.o")
    assert done.returncode == 1, done.stderr
    (error,) = re.findall(r"^(\S+):(\d+):\d+: error: (.*)$", done.stderr, re.M)
    assert error[0] == OPERATIONS
    assert "GPUContext::WaitForEvents(" in error[2]
    assert (CALL + REST) in (horovod / OPERATIONS).read_text().splitlines()[int(error[1]) - 1]


def test_everything_else_compiles_and_is_in_the_library(
    prefix: Path, horovod: Path, includes: list[str], tmp_path: Path
) -> None:
    unmodified = compile_it(horovod, includes, CONTEXT, tmp_path / "context.o")
    assert unmodified.returncode == 0, unmodified.stderr

    mended = horovod / OPERATIONS.replace("ddl_operations", "ddl_operations_mended")
    text = (horovod / OPERATIONS).read_text()
    assert text.count(CALL + REST) == 1
    mended.write_text(text.replace(CALL + REST, CALL_TODAY + ");"))
    done = compile_it(horovod, includes, str(mended), tmp_path / "operations.o")
    assert done.returncode == 0, done.stderr

    wanted = undefined(tmp_path / "context.o") | undefined(tmp_path / "operations.o")
    assert wanted == {"ddl_init", "ddl_finalize", "ddl_allreduce"}
    library = prefix / "lib" / "libddl.so.1"
    symbols = subprocess.check_output(["nm", "-D", "--defined-only", library], text=True).split()
    assert wanted <= set(symbols)
