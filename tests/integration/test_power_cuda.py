"""libddl with CUDA for POWER: installed, loaded under emulation, and asked for a GPU without one.

It takes what `ddlce build --platform linux-ppc64le --cuda 12.4` left in the store, and builds
nothing. No GPU can be had here: what reduces on host memory is all that runs.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from ddlce.elf import read_elf
from ddlce.plan import make_plan
from ddlce.settings import load_settings
from support.run import ok
from support.storeprefix import POWER, POWER_MARKS, prefix_of, run_emulated

CUDA = "12.4"
SPECS = ["ddl=*=cuda124*", "mpich"]
ORACLE = Path(__file__).parents[2] / "recipes" / "ddl" / "tests" / "package" / "oracle.py"

#: NVIDIA's file in Debian's libcudart12 for ppc64el, which its licence lets nobody modify.
CUDART = "24764f91ecf7d369aa83590666cc2877fef8f12bdc07f9301635daf202eb4054"

pytestmark = POWER_MARKS

ASK = """
import ctypes, ddl
from ddl import _core
print(_core.cuda_library())
library = ctypes.CDLL("libddl.so.1")
library.ddl_last_error.restype = ctypes.c_char_p
print(library.ddl_set_stream(None), library.ddl_last_error().decode())
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix for POWER with the build of ddl for CUDA."""
    plan = make_plan(load_settings(), POWER, CUDA).restrict(["ddl-cuda124", "mpich"])
    return prefix_of(plan, SPECS, tmp_path_factory.mktemp("cuda"))


def run(prefix: Path, program: str, *arguments: str) -> str:
    done = ok(run_emulated(prefix, POWER, program, *arguments))
    return done.stdout


def test_it_says_its_cuda_and_that_there_is_no_gpu(prefix: Path) -> None:
    version, answer = run(prefix, "python", "-c", ASK).splitlines()
    assert version == "CUDA 12.4, NCCL 2.22.3"
    assert answer.startswith("2 ddl_set_stream: no CUDA device here: ")
    assert "use host memory" in answer


def test_ranks_reduce_on_host_memory(prefix: Path) -> None:
    run(prefix, "mpiexec", "-n", "2", str(prefix / "bin" / "python"), str(ORACLE))


def test_its_libraries_are_those_of_the_prefix(prefix: Path) -> None:
    elf = read_elf((prefix / "lib" / "libddl.so.1").read_bytes())
    assert elf
    assert elf.machine == "EM_PPC64"
    assert {"libcudart.so.12", "libnccl.so.2"} <= set(elf.needed)
    assert all(rpath.startswith("$ORIGIN") for rpath in elf.rpaths)
    runtime = (prefix / "lib" / "libcudart.so.12").read_bytes()
    assert hashlib.sha256(runtime).hexdigest() == CUDART


def test_one_prefix_has_one_cuda(prefix: Path) -> None:
    """And of its packages, only what ddl runs on."""
    records = [json.loads(p.read_text()) for p in (prefix / "conda-meta").glob("*.json")]
    versions = {r["name"]: r["version"] for r in records}
    found = {n: v for n, v in versions.items() if n.startswith(("cuda", "nccl", "libcu"))}
    assert found == {"cuda-version": CUDA, "cuda-cudart": "12.4.127", "nccl": "2.22.3"}
    for record in records:
        if record["name"] in ("cuda-cudart", "nccl", "ddl"):
            assert f"cuda-version {CUDA}.*" in record["depends"]
