"""Each wait of ddl-torch for streams is needed: without it, the simulated CUDA finds a fault."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.cudatorch import launch_torch
from support.run import ok
from support.run import run as run_program

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(1800)]

SOURCES = Path(__file__).parents[2] / "recipes" / "ddl-torch" / "src"

#: What is taken out of the code that orders ddl's streams with the program's.
WAITS = {
    "ddl waits for the program's stream": "  asked_->block(stream);\n",
    "the program's stream is asked": "  asked_->record(stream);\n",
    "a call ends when the GPU is done": "  stream.synchronize();\n",
}

#: The program's stream writes the tensor late, and reads it as soon as the call has ended.
PROGRAM = """
import torch
import torch.distributed as dist
import ddl_torch

dist.init_process_group("ddl")
size = dist.get_world_size()
torch.cuda.set_device(dist.get_rank())
side = torch.cuda.Stream()
for stream in (torch.cuda.current_stream(), side):
    with torch.cuda.stream(stream):
        for count in (100, 100_000):
            tensor = torch.zeros(count, device="cuda")
            tensor.fill_(1)
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            assert (tensor == size).all().item()
            dist.broadcast(tensor.add_(dist.get_rank()), 0)
            assert (tensor == size).all().item()
            # Not contiguous: it is copied back on ddl's stream, after the sum.
            wide = torch.ones(count // 10, 10, device="cuda").t()
            dist.all_reduce(wide)
            assert (wide == size).all().item()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def build(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ddl-torch, built from a copy of its sources, which lies beside it."""
    folder = tmp_path_factory.mktemp("ddl-torch")
    shutil.copytree(SOURCES, folder / "src")
    configure = [
        *("cmake", "-S", folder / "src", "-B", folder / "build", "-G", "Ninja"),
        *(f"-DCMAKE_PREFIX_PATH={prefix}", f"-DPython_EXECUTABLE={prefix}/bin/python"),
        *(f"-DCMAKE_INSTALL_PREFIX={folder}/installed", "-DCMAKE_INSTALL_LIBDIR=lib"),
    ]
    for command in (configure, ["cmake", "--build", folder / "build"]):
        run_program([str(word) for word in command], check=True)
    return folder


def run(prefix: Path, simulated: dict[str, str], build: Path) -> subprocess.CompletedProcess[str]:
    """Install what was built, and run the program with it on two ranks."""
    for step in (["--build", build / "build"], ["--install", build / "build"]):
        command = ["cmake", *map(str, step)]
        run_program(command, check=True)
    (site,) = build.glob("installed/lib/python3*/site-packages")
    (build / "program.py").write_text(PROGRAM)
    variables = {
        **simulated,
        "PYTHONPATH": f"{site}:{simulated['PYTHONPATH']}",
        # Its RPATH is for a place beside PyTorch.
        "LD_LIBRARY_PATH": f"{simulated['LD_LIBRARY_PATH']}:{prefix}/lib",
        "CUDASIM_DELAY": "3000",
        "DDL_TIMEOUT": "20",
    }
    return launch_torch(prefix, 2, variables, build / "program.py")


@pytest.mark.parametrize("wait", WAITS)
def test_a_removed_wait_is_found(
    prefix: Path, simulated_torch: dict[str, str], build: Path, wait: str
) -> None:
    source = build / "src" / "csrc" / "stream.cc"
    text = source.read_text()
    assert text.count(WAITS[wait]) == 1
    source.write_text(text.replace(WAITS[wait], ""))
    try:
        done = run(prefix, simulated_torch, build)
    finally:
        source.write_text(text)
    assert done.returncode != 0
    assert "cudasim: a race" in done.stderr, done.stderr[-4000:]


def test_nothing_is_found_with_all_waits(
    prefix: Path, simulated_torch: dict[str, str], build: Path
) -> None:
    """What the tests above change is undone."""
    ok(run(prefix, simulated_torch, build))
