"""Each wait of libddl's device code is needed: without it, the simulated CUDA finds a fault."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cudavariant import build_cuda_variant, launch_simulated
from support.run import run

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(1200)]

#: A file, what is there, what takes its place, and the run that must fail: its program with
#: arguments, ranks, hosts and GPUs.
WAITS = {
    "a collective waits for the program's stream": (
        "cuda_device.cc",
        "      gpu.ready.block(gpu.stream);\n",
        "",
        ("order", 2, 0, 2),
    ),
    "a call returns when the GPU is done": (
        "cuda_device.cc",
        "      wait(gpu.finished);\n",
        "",
        ("order", 2, 0, 2),
    ),
    "a message waits for the program's stream": (
        "cuda_device.cc",
        "  ready.block(stream);\n",
        "",
        ("order", 2, 0, 2),
    ),
    "a message is in host memory before it is sent": (
        "cuda_device.cc",
        "  check_cuda(cudaStreamSynchronize(stream), what);\n",
        "",
        ("order", 2, 0, 2),
    ),
    "NCCL is ready before its first call": (
        "nccl.cc",
        "  if (!is_pending(code)) return;\n",
        "  if (true) return;\n",
        ("values", 2, 0, 2),
    ),
    "a slice is in host memory before it goes to other hosts": (
        "cuda_collectives.cc",
        "    wait(gpu.brought[c % kSlots]);\n",
        "",
        ("values", 2, 2, 1),
    ),
    "a part is in host memory before it is moved there": (
        "cuda_collectives.cc",
        "    wait(gpu.brought[c % kSlots]);\n",
        "",
        ("values", 2, 0, 1),
    ),
    "after an error, nothing uses the buffers any more": (
        "cuda_device.cc",
        "  while (cudaStreamQuery(gpu.stream) == cudaErrorNotReady && ",
        "  while (cudaStreamQuery(nullptr) == cudaErrorNotReady && ",
        ("lose fault", 2, 0, 2),
    ),
}


@pytest.fixture(scope="module")
def cuda_variant(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of their own: these tests change it."""
    return build_cuda_variant(prefix, tmp_path_factory.mktemp("mutations") / "library")


@pytest.fixture
def device(cuda_variant: Path) -> Iterator[Path]:
    """The folder of the device code; what a test changes there is as before afterwards."""
    folder = cuda_variant.parent / "src" / "lib" / "device"
    kept = shutil.copytree(folder, cuda_variant.parent / "kept", dirs_exist_ok=True)
    yield folder
    for path in kept.iterdir():
        if path.read_bytes() != (folder / path.name).read_bytes():
            shutil.copyfile(path, folder / path.name)


@pytest.mark.parametrize("wait", WAITS)
def test_a_removed_wait_is_found(
    prefix: Path, cuda_sim: str, cuda_variant: Path, device: Path, wait: str
) -> None:
    name, there, instead, (program, n, hosts, gpus) = WAITS[wait]
    source = device / name
    text = source.read_text()
    assert text.count(there) == 1
    source.write_text(text.replace(there, instead))
    run(["cmake", "--build", cuda_variant], check=True)
    variables = {"CUDASIM_DELAY": "3000", "DDL_TIMEOUT": "5"}
    if program.endswith("fault"):
        variables["CUDASIM_FAULT"] = "nccl-hang@3:1"
    done = launch_simulated(
        prefix,
        cuda_variant,
        cuda_sim,
        *program.split(),
        n=n,
        hosts=hosts,
        gpus=gpus,
        **variables,
    )
    assert done.returncode != 0
    words = ("cudasim: a race", "cudasim: the program", "RefusedError: nccl")
    assert any(word in done.stderr for word in words), done.stderr


def test_nothing_is_found_with_all_waits(
    prefix: Path, cuda_sim: str, cuda_variant: Path, device: Path
) -> None:
    """What the tests above change is undone."""
    run(["cmake", "--build", cuda_variant], check=True)
    for program in ("order", "values"):
        done = launch_simulated(prefix, cuda_variant, cuda_sim, program, n=2, CUDASIM_DELAY="3000")
        assert done.returncode == 0, done.stderr
