"""The marks of tests that bring up the lab of tests/bench/lab, and Slurm in it."""

from __future__ import annotations

import pytest

from bench.lab import network, slurm


def _unless(why_not: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(why_not), reason=why_not)


needs_lab = _unless(network.why_not())
#: Slurm's hosts are the lab's.
needs_slurm = _unless(network.why_not() or slurm.why_not())
