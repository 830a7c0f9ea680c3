"""Fixtures that unit and integration tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support.minitree import MiniTree, make_tree


@pytest.fixture
def tree(tmp_path: Path) -> MiniTree:
    """A small real tree with three recipes."""
    return make_tree(tmp_path)
