"""Workers of rattler: what their environment is."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from ddlce.engine import worker


@pytest.fixture(autouse=True)
def _untold(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_a_machine_without_authorities_gets_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BUNDLES", (Path("/nowhere"),))
    found = worker.certificates()
    assert ssl.create_default_context(cafile=found["SSL_CERT_FILE"]).get_ca_certs()


def test_a_machine_s_own_and_a_user_s_own_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.crt"
    bundle.touch()
    monkeypatch.setattr(worker, "BUNDLES", (Path("/nowhere"), bundle))
    assert worker.certificates() == {}
    bundle.unlink()
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert worker.certificates() == {}
