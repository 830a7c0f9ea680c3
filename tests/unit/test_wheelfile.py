"""Wheels that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.errors import SourceError
from ddlce.sources.wheelfile import read_wheel
from support.wheelfiles import make_wheel


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[console_scripts]\na = x:y\na = x:z\n", "'a' in section 'console_scripts' already"),
        (b"[console_scripts]\na = x:y\n[console_scripts]\nb = x:z\n", "'console_scripts' already"),
        (b"a = x:y\n", "contains no section headers"),
        ("[console_scripts]\nä = x:y\n".encode("latin-1"), "'utf-8' codec can't decode"),
    ],
)
def test_scripts_that_no_installer_can_read_are_named(
    tmp_path: Path, text: bytes, reason: str
) -> None:
    path = make_wheel(tmp_path, files={"demo-1.0.dist-info/entry_points.txt": text})
    with pytest.raises(SourceError) as caught:
        read_wheel(path)
    assert caught.value.message.startswith(f"{path}: not a readable wheel: ")
    assert reason in caught.value.message
    assert "\n" not in caught.value.message
