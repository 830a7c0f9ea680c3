"""The releases that are installed on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.env.layout import Layout
from ddlce.settings import load_settings


def installed(env: str, made_by: str) -> Path:
    """The prefix of an environment's current release; the test is skipped where there is none.

    Args:
        made_by: the command that makes it, for the reason.
    """
    current = Layout(load_settings().root).current(env)
    if current is None:
        pytest.skip(f"there is no environment {env}: `{made_by}` makes it")
    return current
