"""Where the folders come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.errors import InputError
from ddlce.settings import load_settings


def test_a_home_is_filled_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DDLCE_CACHE", "~/cache")
    assert load_settings().cache == tmp_path / "cache"
    assert load_settings(Path("~/root")).root == tmp_path / "root"


@pytest.mark.parametrize("name", ["DDLCE_CACHE", "DDLCE_ROOT"])
def test_an_unknown_user_s_home(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "~no-such-user/x")
    with pytest.raises(InputError, match=f"{name}: .*no user 'no-such-user'"):
        load_settings()
