"""The collectives on real ranks: on one host, and over pretended ones, equally filled or not."""

from __future__ import annotations

import importlib.util

import pytest

from conftest import Launch

# (ranks, pretended hosts; 0: the real one). Hosts take ranks in turn, so they are interleaved.
LAYOUTS = [(1, 0), (2, 0), (3, 0), (4, 0), (2, 2), (3, 2), (4, 3)]
SMALL_CHUNK = 1024

layouts = pytest.mark.parametrize(("n", "hosts"), LAYOUTS)


@layouts
def test_reductions_are_exact(passes: Launch, n: int, hosts: int) -> None:
    passes("reductions", "exact", n=n, hosts=hosts, chunk=SMALL_CHUNK)


@layouts
def test_sums_are_rounded_once_in_a_fixed_order(passes: Launch, n: int, hosts: int) -> None:
    # Chunks in which every host has a part of its own.
    passes("reductions", "order", n=n, hosts=hosts, chunk=8 * SMALL_CHUNK)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="bfloat16 comes with torch")
@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (4, 0), (4, 3)])
def test_bfloat16(passes: Launch, n: int, hosts: int) -> None:
    passes("reductions", "bfloat16", n=n, hosts=hosts, chunk=SMALL_CHUNK)


@layouts
def test_every_byte_arrives(passes: Launch, n: int, hosts: int) -> None:
    passes("movement", n=n, hosts=hosts, chunk=SMALL_CHUNK)


@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (4, 2)])
def test_default_chunks(passes: Launch, n: int, hosts: int) -> None:
    passes("reductions", "exact", n=n, hosts=hosts)
    passes("movement", n=n, hosts=hosts)


@pytest.mark.parametrize(("n", "hosts"), [(1, 0), (2, 0), (4, 0), (4, 3)])
def test_direct_exchanges(passes: Launch, n: int, hosts: int) -> None:
    passes("exchange", n=n, hosts=hosts)


@pytest.mark.parametrize(("n", "hosts"), [(2, 0), (4, 0), (2, 2), (4, 3), (4, 4)])
def test_disagreement_is_an_error_everywhere(passes: Launch, n: int, hosts: int) -> None:
    passes("disagree", n=n, hosts=hosts)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [0, 2])
def test_more_elements_than_32_bits_count(passes: Launch, hosts: int) -> None:
    """Takes 9 GB of memory."""
    passes("huge", n=2, hosts=hosts)
