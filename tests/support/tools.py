"""Programs and wheels for tests that PyPI has, installed once beside the others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ddlce.locks import locked
from support.modulesystems import UNPACKED
from support.run import run


def once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of the tests' tools with this name, which `make` has filled once.

    Args:
        name: of the folder; another name for other contents.
        make: fills a folder of another name, which is not there yet; it may skip the test.
    """
    folder = UNPACKED / name
    with locked(UNPACKED / ".lock"):
        if not folder.is_dir():
            partial = folder.with_name(f".{name}")
            shutil.rmtree(partial, ignore_errors=True)
            make(partial)
            partial.rename(folder)
    return folder


def pip(python: str | Path, *words: str | Path) -> None:
    """Run pip; the test is skipped, with pip's last words, where that fails."""
    done = run([python, "-m", "pip", words[0], "--quiet", *words[1:]])
    if done.returncode:
        pytest.skip(f"pip {words[0]} has failed: {done.stderr.strip()[-300:]}")
