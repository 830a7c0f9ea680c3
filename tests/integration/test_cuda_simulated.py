"""libddl's collectives on memory of GPUs, on a simulated CUDA: nothing here runs on a GPU.

The simulation is in tests/cuda-sim. Streams are threads that begin each operation after a random
while, and a program that touches memory without an order with a stream's operation is ended.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.cudavariant import Result, launch_simulated
from support.run import ok
from support.run import run as run_program

pytestmark = [pytest.mark.built, pytest.mark.timeout(1200)]

NCCL = "through NCCL"
LANES = "through NCCL and between hosts"
HOST = "through host memory"

# (ranks, pretended hosts, GPUs, the way of the first rank); rank r has GPU r modulo their number.
LAYOUTS = [
    (1, 0, 1, NCCL),
    (2, 0, 3, NCCL),  # the third is no rank's: its memory is refused
    (3, 2, 3, LANES),  # two ranks on one host, one on the other
    (4, 2, 2, HOST),
    *(
        pytest.param(*layout, marks=pytest.mark.slow)
        for layout in ((4, 0, 4, NCCL), (2, 2, 1, LANES), (4, 2, 4, LANES), (2, 0, 1, HOST))
    ),
]

Launch = Callable[..., Result]


@pytest.fixture
def launch(prefix: Path, cuda_sim: str, cuda_variant: Path) -> Launch:
    """`launch_simulated` with what was built."""

    def run(program: str, *arguments: str, **options: Any) -> Result:
        return launch_simulated(prefix, cuda_variant, cuda_sim, program, *arguments, **options)

    return run


@pytest.fixture
def passes(launch: Launch) -> Launch:
    """As `launch`, and the program must end well on every rank."""

    def run(program: str, *arguments: str, **options: Any) -> Result:
        done = ok(launch(program, *arguments, **options))
        assert "simulated GPUs, and no real one" in done.stderr
        return done

    return run


@pytest.mark.parametrize(("n", "hosts", "gpus", "way"), LAYOUTS)
@pytest.mark.parametrize("program", ["values", "order", "refused"])
def test_results_are_right_each_way(
    passes: Launch, program: str, n: int, hosts: int, gpus: int, way: str
) -> None:
    done = passes(program, n=n, hosts=hosts, gpus=gpus)
    assert f"collectives go {way}" in done.stderr


@pytest.mark.parametrize(("n", "hosts", "gpus", "way"), LAYOUTS)
def test_cuda_graphs_have_what_nccl_can(
    passes: Launch, n: int, hosts: int, gpus: int, way: str
) -> None:
    passes("captured", *(["nccl"] if way == NCCL else []), n=n, hosts=hosts, gpus=gpus)


@pytest.mark.parametrize("hosts", [0, 2])
def test_deterministic_sums_go_through_host_memory(passes: Launch, hosts: int) -> None:
    options = "-deterministic 1 -dbg_level 1"
    assert f"go {HOST}" in passes("values", n=2, hosts=hosts, DDL_OPTIONS=options).stderr


@pytest.mark.parametrize("seed", ["2", pytest.param("3", marks=pytest.mark.slow)])
def test_other_delays(passes: Launch, seed: str) -> None:
    passes("order", n=2, hosts=2, gpus=1, CUDASIM_SEED=seed, CUDASIM_DELAY="3000")


@pytest.mark.parametrize(("n", "hosts", "gpus"), [(2, 0, 2), (3, 3, 1)])
def test_a_stopped_rank_is_named(launch: Launch, n: int, hosts: int, gpus: int) -> None:
    done = launch("lose", "stop", n=n, hosts=hosts, gpus=gpus, DDL_TIMEOUT="5")
    assert done.returncode != 0
    for rank in range(n - 1):
        assert f"rank {rank} after" in done.stdout, done.stdout + done.stderr
    assert f"rank {n - 1} (host" in done.stdout, done.stdout + done.stderr
    assert "AssertionError" not in done.stderr, done.stderr


def test_a_rank_that_is_stopped_before_it_launches_a_graph_is_named(launch: Launch) -> None:
    done = launch("graph_lose", n=2, DDL_TIMEOUT="5")
    assert done.returncode != 0
    assert re.search(r"rank 0 after .*rank 1 \(host", done.stdout), done.stdout + done.stderr
    assert "Error" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        # NCCL may tell of it first, in its own words.
        ("lost@9", "CUDA-capable device.s. is/are busy or unavailable|unhandled cuda error"),
        ("ecc@9", "uncorrectable ECC error encountered|unhandled cuda error"),
        ("illegal@9", "an illegal memory access was encountered|unhandled cuda error"),
        ("nccl-error@3", "NCCL failed: unhandled system error"),
        ("nccl-hang@3", "no answer within 5 s from the GPUs of rank 0"),
    ],
)
def test_a_lost_gpu_is_told_on_all_ranks(launch: Launch, fault: str, words: str) -> None:
    # Beside other tests, a rank may take seconds to tell the others.
    timeout = "5" if "hang" in fault else "30"
    done = launch("lose", "fault", n=2, DDL_TIMEOUT=timeout, CUDASIM_FAULT=f"{fault}:1")
    assert done.returncode != 0
    told = {line.split()[1]: line for line in done.stdout.splitlines() if " after " in line}
    for rank in "01":
        assert re.search(words, told[rank]), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CUDASIM_DRIVER", "11000", "the driver is missing or too old"),
        ("CUDA_VISIBLE_DEVICES", "", "no CUDA-capable device is detected"),
        ("CUDA_VISIBLE_DEVICES", "7", "no CUDA-capable device is detected"),
    ],
)
def test_a_machine_without_a_gpu(launch: Launch, name: str, value: str, words: str) -> None:
    done = ok(launch("lacks", n=2, gpus=1, **{name: value}))
    assert words in done.stdout


def test_a_gpu_without_memory(launch: Launch) -> None:
    done = launch("lacks", n=2, gpus=1, CUDASIM_FAULT="memory@2")
    assert done.returncode != 0  # the world cannot be used any more
    assert "pinning 4096 bytes failed: out of memory" in done.stdout, done.stderr


#: What the simulation must find, in a program of its own: the body, and its last words.
FAULTS = {
    "two streams": (
        "copy(one); copy(two)",
        r"a race for 4096 bytes of GPU 0: cudaMemcpyAsync in stream [12] of GPU 0 writes, and "
        r"cudaMemcpyAsync in stream [12] of GPU 0 writes, with no order between them",
    ),
    "the default stream does not wait": (
        "copy(one); check(c.cudaMemset(gpu, 0, n))",
        "a race for 4096 bytes of GPU 0: .* in the default stream of GPU 0",
    ),
    "pinned memory is read too early": (
        "copy(one, pinned, gpu, 2); print(ctypes.string_at(pinned, 1))",
        "the program reads 4096 bytes of pinned memory that cudaMemcpyAsync in stream 1 of GPU 0 "
        "writes, without having waited for it",
    ),
    "pinned memory is written too early": (
        "copy(one); ctypes.memset(pinned, 0, 1)",
        "the program writes to 4096 bytes of pinned memory that cudaMemcpyAsync in stream 1 of "
        "GPU 0 reads",
    ),
    "pinned memory is freed too early": (
        "copy(one); c.cudaFreeHost(pinned)",
        "the program frees 4096 bytes of pinned memory that cudaMemcpyAsync in stream 1",
    ),
    "memory of a GPU": (
        "ctypes.string_at(gpu, 1)",
        "the program reads memory of GPU 0 by itself",
    ),
    "beyond the end": (
        "c.cudaMemsetAsync(gpu, 0, ctypes.c_size_t(4097), one)",
        "cudaMemsetAsync in stream 1 of GPU 0 goes 1 bytes beyond the end of its memory",
    ),
    "an unknown function": (
        "c.cudaGraphCreate()",
        "the program calls cudaGraphCreate, which is not simulated",
    ),
}

#: What has an order, in the same program.
ORDERED = {
    "an event": "copy(one); record(one); check(c.cudaStreamWaitEvent(two, event, 0)); copy(two)",
    "the host waits": "copy(one); check(c.cudaStreamSynchronize(one)); copy(two)",
    "the host asks": "copy(one); record(one)\nwhile c.cudaEventQuery(event): pass\ncopy(two)",
    "one reads, one reads": "copy(one, other, gpu, 3); copy(two, pinned, gpu, 2)",
    "pinned memory, after a while": (
        "copy(one, pinned, gpu, 2); check(c.cudaStreamSynchronize(one))\n"
        "print(ctypes.string_at(pinned, 1))"
    ),
    "another part": (
        "copy(one, pinned, gpu, 2, 100); ctypes.memset(pinned.value + 200, 0, 1)\n"
        "check(c.cudaStreamSynchronize(one))"
    ),
}

PRELUDE = """
import ctypes, sys
c = ctypes.CDLL(sys.argv[1])
n = ctypes.c_size_t(4096)
pointer = lambda: ctypes.c_void_p()
gpu, other, pinned, one, two, event = (pointer() for _ in range(6))
def check(code): assert code == 0, code
check(c.cudaMalloc(ctypes.byref(gpu), n)); check(c.cudaMalloc(ctypes.byref(other), n))
check(c.cudaMallocHost(ctypes.byref(pinned), n))
for stream in (one, two): check(c.cudaStreamCreateWithFlags(ctypes.byref(stream), 1))
check(c.cudaEventCreateWithFlags(ctypes.byref(event), 2))
def copy(stream, to=gpu, source=pinned, kind=1, nbytes=4096):
    check(c.cudaMemcpyAsync(to, source, ctypes.c_size_t(nbytes), kind, stream))
def record(stream): check(c.cudaEventRecord(event, stream))
"""


def run_alone(cuda: str, body: str) -> Result:
    runtime = next(library for library in cuda.split() if "libcudart" in library)
    end = "check(c.cudaDeviceSynchronize())\n"
    command = [sys.executable, "-c", f"{PRELUDE}\n{body}\n{end}", runtime]
    return run_program(command)


@pytest.mark.parametrize("name", FAULTS)
def test_the_simulation_finds(cuda_sim: str, name: str) -> None:
    body, words = FAULTS[name]
    done = run_alone(cuda_sim, body)
    assert done.returncode == -6, done.stderr
    assert re.search(f"^cudasim: {words}", done.stderr, re.MULTILINE), done.stderr


@pytest.mark.parametrize("name", ORDERED)
def test_the_simulation_lets_pass(cuda_sim: str, name: str) -> None:
    ok(run_alone(cuda_sim, ORDERED[name]))
