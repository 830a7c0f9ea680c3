"""A machine that trusts a keeper's root, and what it says when it is deceived."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlce.cli.env.create import install
from ddlce.cli.keys import check
from ddlce.errors import DdlceError, SourceError
from ddlce.trust.names import lock_name
from support.bundles import toy_lock, toy_settings
from support.signing import Keeper

LOCK = "mini-2026.11-73f02696-linux-64.lock"
KINDS = {
    "lock": LOCK,
    "sources": "sources.lock",
    "index": "repodata.json",
    "SBOM": "mini-2026.11-linux-64.cdx.json",
    "bundle": "mini-2026.11-linux-64.run",
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Keeper:
    """Root 1, and a first set of signatures."""
    made = Keeper(tmp_path_factory.mktemp("keeper"))
    made.files.mkdir()
    for name in KINDS.values():
        (made.files / name).write_text(f"{name}\n")
    lock = toy_lock(made.folder / "channel")
    # A toy's bytes have the time of its packing, and with it the lock's digest. None is unpacked.
    fixed = [p.model_copy(update={"sha256": "0" * 64, "size": 1}) for p in lock.packages]
    lock = lock.model_copy(update={"packages": fixed})
    assert lock_name(lock) == LOCK, "the toys have changed: write their lock's new name"
    (made.files / LOCK).write_text(lock.to_yaml())
    assert made.root("anna", "ben") == 0
    made.sign()
    return made


@dataclass
class Client:
    """A machine that trusts the first root."""

    keeper: Keeper
    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def create(self) -> None:
        """`ddlce env create`, as far as the first package, which is not there."""
        lock, empty = self.keeper.files / LOCK, self.folder / "empty"
        install("mini", lock=lock, root=self.root, channel=str(empty))

    def check(self, *names: str) -> None:
        """`ddlce keys check`."""
        check([self.keeper.files / name for name in names])

    def good(self) -> None:
        """All is signed: the installation begins, and finds no packages."""
        self.check(*KINDS.values())
        with pytest.raises(SourceError, match=r"empty|conda"):
            self.create()
        shutil.rmtree(self.root, ignore_errors=True)

    def refused(self, work: Callable[[], None]) -> str:
        """The one sentence; nothing may be written."""
        with pytest.raises(DdlceError) as caught:
            work()
        assert not self.root.exists()
        assert caught.value.hint
        message = caught.value.message
        assert "\n" not in message
        return message.removeprefix(f"{self.keeper.metadata.as_uri()}: ").removeprefix(
            f"{self.keeper.metadata}: "
        )


@pytest.fixture
def client(prepared: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    keeper = prepared.copy(tmp_path / "keeper")
    settings = toy_settings(tmp_path)
    monkeypatch.setenv("DDLCE_SETTINGS", str(keeper.settings_file()))
    monkeypatch.setenv("DDLCE_REPO", str(settings.repo))
    monkeypatch.setenv("DDLCE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    return Client(keeper, tmp_path)
