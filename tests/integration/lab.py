"""The mark of tests that bring up the lab of tests/bench/lab."""

from __future__ import annotations

import pytest

from bench.lab.network import why_not

_WHY_NOT = why_not()
needs_lab = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
