"""Orbax's checkpoints over the ranks: saved by some, restored by others."""

from pathlib import Path

import pytest
from rank_cases import Run


def test_saved_by_four_restored_by_two(ddlrun: Run, tmp_path: Path) -> None:
    pytest.importorskip("orbax.checkpoint")
    for ranks, way in ((4, "save"), (2, "restore")):
        result = ddlrun(ranks, "checkpoints.py", way, str(tmp_path / "state"))
        assert result.returncode == 0, result.stderr[-4000:]
        assert result.stdout.count(f"{way} done") == ranks, result.stdout
