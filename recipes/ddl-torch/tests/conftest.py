"""Runs programs on real ranks by the ddlrun of the python that runs these tests."""

from pathlib import Path

import pytest
from rank_cases import Run, ddlrun_for

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def ddlrun() -> Run:
    """Runs a script beside these tests, or code, on some ranks of this host."""
    return ddlrun_for(HERE)
