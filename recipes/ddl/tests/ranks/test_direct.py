"""Direct messages from Python, on one host and over pretended ones."""

from __future__ import annotations

import importlib.util

import pytest

from conftest import Launch


@pytest.mark.parametrize(("n", "hosts"), [(1, 0), (2, 0), (3, 2), (4, 0)])
def test_every_byte_arrives_at_its_rank(passes: Launch, n: int, hosts: int) -> None:
    passes("direct", n=n, hosts=hosts)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("n", [1, 3])
def test_tensors(passes: Launch, n: int) -> None:
    passes("direct", "torch", n=n)


@pytest.mark.parametrize("n", [1, 2])
def test_the_names_of_pyddl(passes: Launch, n: int) -> None:
    passes("names_of_pyddl", n=n)


@pytest.mark.parametrize("n", [1, 2])
def test_arguments_that_c_programs_get_wrong(passes: Launch, n: int) -> None:
    passes("c_arguments", n=n)
