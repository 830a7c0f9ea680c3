"""Workers of rattler: what their environment is."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from ddlce.engine import worker
from ddlce.errors import WorkError


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


@pytest.mark.timeout(60)
def test_a_worker_that_complains_at_length_is_not_held_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a pipe holds."""
    text = "import sys\nfrom ddlce.engine.worker import serve\nsys.stderr.write('x' * 300_000)\n"
    (tmp_path / "loud.py").write_text(f"{text}serve(lambda request: request['n'] + 1)\n")
    (tmp_path / "dying.py").write_text(f"{text}print('\\nthe reason', file=sys.stderr)\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    assert worker.call("loud", {"n": 1}) == 2
    with pytest.raises(WorkError, match="dying ended with status 0 and no answer: the reason"):
        worker.call("dying", {})
