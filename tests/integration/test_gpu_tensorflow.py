"""TensorFlow's build for GPUs, in the release for CUDA 12.8, on a machine without one.

The simulated CUDA does not carry TensorFlow, whose kernels nobody has written for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from pathlib import Path

import pytest

from ddlce.elf import parse_elf
from ddlce.smoke import clean_environment
from support.releases import installed
from support.run import ok
from support.run import run as run_program

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(600)]

#: What TensorFlow 2.21 opens by name as it finds a GPU (xla/tsl/platform/default/dso_loader.cc).
SONAMES = [
    *("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11"),
    *("libcusolver.so.11", "libcusparse.so.12", "libcudnn.so.9", "libnccl.so.2", "libcupti.so.12"),
]

#: A kernel for GPUs, as XLA hands it to ptxas.
PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
"""

RANKS = """
import ddl, ddl_tensorflow, horovod.tensorflow as hvd, tensorflow as tf
ddl.init()
hvd.init()
assert tf.sysconfig.get_build_info()["is_cuda_build"]
x = tf.range(5, dtype=tf.float32) + hvd.rank()
wanted = [1, 3, 5, 7, 9]
assert (hvd.allreduce(x, op=hvd.Sum).numpy() == wanted).all()
assert (ddl_tensorflow.allreduce(x).numpy() == wanted).all()
print("all well")
"""


@pytest.fixture(scope="module")
def prefix() -> Path:
    return installed("ddl-ce-gpu12", "ddlce all ddl-ce-gpu12")


def run(prefix: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return run_program(
        [str(prefix / "bin" / words[0]), *map(str, words[1:])],
        env=clean_environment(prefix, os.environ),
    )


@pytest.fixture(scope="module")
def folders(prefix: Path) -> list[Path]:
    """The run paths of TensorFlow's two libraries."""
    found = []
    for library in prefix.glob("lib/python*/site-packages/tensorflow/libtensorflow_*.so.2"):
        with library.open("rb") as stream:
            elf = parse_elf(stream)
        assert elf
        found += [Path(path.replace("$ORIGIN", str(library.parent))) for path in elf.rpaths]
    return found


@pytest.mark.parametrize("soname", SONAMES)
def test_it_finds_cuda_s_libraries(prefix: Path, folders: list[Path], soname: str) -> None:
    """Where it looks for them, and they load."""
    found = [folder / soname for folder in folders if (folder / soname).exists()]
    assert found, folders
    assert found[0].resolve().is_relative_to(prefix.resolve())
    ctypes.CDLL(str(found[0]))


def test_what_xla_compiles_with(prefix: Path, tmp_path: Path) -> None:
    [tools] = prefix.glob("lib/python*/site-packages/nvidia/cuda_nvcc")
    assert (tools / "nvvm/libdevice/libdevice.10.bc").stat().st_size > 1e5
    (tmp_path / "kernel.ptx").write_text(PTX)
    command = [str(tools / "bin/ptxas"), "--gpu-name", "sm_70", "kernel.ptx", "-o", "kernel.cubin"]
    ok(run_program(command, cwd=tmp_path))
    assert (tmp_path / "kernel.cubin").read_bytes().startswith(b"\x7fELF")


def test_it_has_code_for_a_v100(prefix: Path) -> None:
    program = (
        "import json, tensorflow as tf; about = tf.sysconfig.get_build_info(); "
        "print(json.dumps([about['cuda_compute_capabilities'], "
        "len(tf.config.list_physical_devices('GPU'))]))"
    )
    done = ok(run(prefix, "python", "-c", program))
    capabilities, gpus = json.loads(done.stdout)
    assert "sm_70" in capabilities
    assert gpus == 0


def test_two_ranks_on_cpus(prefix: Path) -> None:
    done = ok(run(prefix, "ddlrun", "-H", "localhost:2", "python", "-c", RANKS))
    assert done.stdout.count("all well") == 2
