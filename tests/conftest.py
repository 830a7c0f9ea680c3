"""Fixtures that unit and integration tests share."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support.minitree import MiniTree, make_tree

# A shell starts its background jobs with interrupts ignored; the programs under test must not be.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def tree(tmp_path: Path) -> MiniTree:
    """A small real tree with three recipes."""
    return make_tree(tmp_path)
