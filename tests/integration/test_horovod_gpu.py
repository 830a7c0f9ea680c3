"""Horovod's GPU operations as our patches leave them: they compile, and count a padded buffer.

They run only where a GPU is. Batched copies into the fusion buffer pad each tensor to 16 bytes, so
an operation that counts the tensors' elements leaves the tail of the buffer as each rank had it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.horovod_source import apply_patches, compile_file, include_options, unpack
from support.pip import Unavailable
from support.run import ok

pytestmark = [pytest.mark.built, pytest.mark.timeout(600)]

#: What operations on GPU tensors are in.
OPERATIONS = ("adasum_gpu", "ddl_gpu", "gpu", "mpi_gpu", "nccl")
DEFINES = ["-DHAVE_MPI=1", "-DHAVE_GPU=1", "-DHAVE_CUDA=1", "-DHAVE_NCCL=1", "-DHAVE_DDL=1"]


@pytest.fixture(scope="module")
def horovod(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its source with our patches."""
    source = unpack(tmp_path_factory.mktemp("horovod"))
    apply_patches(source)
    return source


def code_of(horovod: Path, name: str) -> str:
    """The code of an operation without its comments."""
    text = (horovod / "horovod" / "common" / "ops" / f"{name}_operations.cc").read_text()
    return re.sub(r"//.*", "", text)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_fused_buffer_is_counted_by_its_length(horovod: Path, name: str) -> None:
    """NumElements() adds up the tensors; the buffer's length has their padding, too."""
    assert "NumElements(" not in code_of(horovod, name)


def test_adasum_has_no_padding(horovod: Path) -> None:
    """Its norms are those of single tensors, found by counting from the start of the buffer."""
    copies = re.findall(r"\S*Memcpy(?:In|Out)FusionBuffer\(", code_of(horovod, "adasum_gpu"))
    assert copies == [
        "AllreduceOp::MemcpyInFusionBuffer(",
        "AllreduceOp::MemcpyOutFusionBuffer(",
    ]


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_count_of_elements_is_cut(horovod: Path, name: str) -> None:
    assert not re.findall(r"\(int\)\s*num_elements\b", code_of(horovod, name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adasum_gpu", "ddl_gpu", "mpi_gpu"])
def test_what_the_patches_change_compiles(
    prefix: Path, horovod: Path, tmp_path: Path, name: str
) -> None:
    try:
        options = [*DEFINES, *include_options(prefix, horovod)]
    except Unavailable as error:
        pytest.skip(str(error))
    file = f"horovod/common/ops/{name}_operations.cc"
    ok(compile_file(horovod, options, file, tmp_path / "operations.o"))
