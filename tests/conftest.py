"""Fixtures that unit and integration tests share."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
# Scripts of a recipe, which its build runs and unit tests import.
sys.path.append(str(Path(__file__).parents[1] / "recipes/base/sysroot_linux-64/scripts"))
# What draws the documents' pictures.
sys.path.append(str(Path(__file__).parents[1] / "scripts/docs"))

from ddlce.trees import remove_tree
from support.minitree import MiniTree, make_tree
from support.parts import NAMES, part_of

# A shell starts its background jobs with these ignored; the programs under test must not be.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MiniTree:
    """A small real tree with three recipes; a channel that a user has named is not its own."""
    monkeypatch.delenv("DDLCE_CHANNEL", raising=False)
    return make_tree(tmp_path)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users can enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="ddlce-test-"))
    folder.chmod(0o755)
    yield folder
    remove_tree(folder)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make test PART=ddl` choose."""
    parser.addoption("--part", choices=NAMES, help="only the tests of this part of the project")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to other parts."""
    if part := config.getoption("--part"):
        kept: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            (kept if part_of(item.nodeid) == part else left_out).append(item)
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
