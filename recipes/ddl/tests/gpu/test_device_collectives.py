"""Collectives on GPU memory, by every way that the machine's GPUs allow.

Rank r uses GPU r modulo the number of GPUs, and is on pretended host r modulo `hosts`. Ranks that
share a GPU and a host go through host memory; ranks that are alone on their hosts use lanes, also
when all of them share the one GPU.
"""

from __future__ import annotations

import pytest

from conftest import GPUS, Launch, needs_gpus

CHUNK = 4096  # bytes: several chunks in a small tensor

NCCL = "through NCCL"
LANES = "through NCCL and between hosts"
HOST = "through host memory"

# (ranks, pretended hosts, the GPUs that it takes, the way)
LAYOUTS = [
    pytest.param(1, 0, NCCL, marks=needs_gpus(1)),
    pytest.param(2, 2, LANES, marks=needs_gpus(1)),
    pytest.param(3, 3, LANES, marks=needs_gpus(1)),
    pytest.param(2, 0, NCCL, marks=needs_gpus(2)),
    pytest.param(4, 0, NCCL, marks=needs_gpus(4)),
    pytest.param(4, 2, LANES, marks=needs_gpus(4)),
    pytest.param(3, 2, LANES, marks=needs_gpus(3)),  # two ranks on one host, one on the other
]
SHARED = [(2, 0), (3, 2), (4, 2)]  # each on one GPU, or two: some host has two ranks on one

layouts = pytest.mark.parametrize(("n", "hosts", "way"), LAYOUTS)
shared = pytest.mark.parametrize(("n", "hosts"), SHARED)


@layouts
@pytest.mark.parametrize("program", ["values", "exchange"])
def test_results(passes: Launch, program: str, n: int, hosts: int, way: str) -> None:
    result = passes(program, n=n, hosts=hosts, chunk=CHUNK, options="-dbg_level 1")
    if program == "values":
        assert f"collectives go {way}\n" in result.stderr, result.stderr


@shared
@pytest.mark.parametrize("program", ["values", "exchange"])
def test_results_on_a_shared_gpu(passes: Launch, program: str, n: int, hosts: int) -> None:
    if GPUS > 1:
        pytest.skip(f"needs a machine with one GPU, this one has {GPUS}")
    result = passes(program, n=n, hosts=hosts, chunk=CHUNK, options="-dbg_level 1")
    if program == "values":
        assert f"collectives go {HOST}" in result.stderr, result.stderr


@pytest.mark.parametrize("hosts", [0, 2])
def test_deterministic_sums_go_through_host_memory(passes: Launch, hosts: int) -> None:
    result = passes(
        "values", n=2, hosts=hosts, chunk=CHUNK, options="-deterministic 1 -dbg_level 1"
    )
    assert f"collectives go {HOST}" in result.stderr, result.stderr


@pytest.mark.parametrize(("n", "hosts"), [(1, 0), (2, 0), (2, 2)])
@pytest.mark.parametrize("sync", [0, 1])
def test_a_call_comes_after_its_stream(passes: Launch, n: int, hosts: int, sync: int) -> None:
    passes("order", n=n, hosts=hosts, options=f"-dev_sync {sync}")


@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (2, 2)])
def test_what_is_refused(passes: Launch, n: int, hosts: int) -> None:
    passes("refused", n=n, hosts=hosts)


# Hydra would end the job at once if the rank were killed.
@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (2, 2), (3, 3)])
def test_a_stopped_rank_is_named(launch: Launch, n: int, hosts: int) -> None:
    result = launch("lose", n=n, hosts=hosts, timeout=3)
    assert result.returncode != 0
    for rank in range(n - 1):
        assert f"rank {rank} after" in result.stdout, result.stdout + result.stderr
    assert f"rank {n - 1} (host" in result.stdout, result.stdout + result.stderr
    assert "AssertionError" not in result.stderr, result.stderr
