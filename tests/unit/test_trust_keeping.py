"""Whoever keeps a channel's metadata: killed half-way, two at once, files of others."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest

from ddlce.cli.keys import _check_named
from ddlce.errors import InputError, MachineError, SourceError
from ddlce.trust.client import check_signed
from ddlce.trust.keys import load_public
from ddlce.trust.names import DRAFT
from ddlce.trust.policy import Signatures, load_policy
from ddlce.trust.repository import cosign
from support.signing import ROOT_KEYS, Keeper
from support.trusting import KINDS


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    made = Keeper(tmp_path / "keeper")
    made.files.mkdir()
    for name in KINDS.values():
        (made.files / name).write_text(name)
    assert made.root("anna", "ben") == 0
    made.sign()
    return made


def test_a_withdrawal_that_was_killed_is_repeated(keeper: Keeper) -> None:
    name = next(iter(KINDS.values()))
    before = {path.name: path.read_bytes() for path in keeper.metadata.iterdir()}
    (keeper.files / name).unlink()
    keeper.sign(withdrawn=(name,))
    # Killed after the first of three files: clients have the old state.
    for file in ("timestamp.json", "2.snapshot.json"):
        (keeper.metadata / file).unlink()
    (keeper.metadata / "timestamp.json").write_bytes(before["timestamp.json"])
    keeper.sign(withdrawn=(name,))
    assert name not in (keeper.metadata / "3.targets.json").read_text()


def test_two_who_sign_at_once_lose_nothing(keeper: Keeper) -> None:
    both = threading.Barrier(2)

    def sign(name: str) -> None:
        (keeper.files / name).write_text(name)
        both.wait()
        keeper.sign()

    threads = [threading.Thread(target=sign, args=(name,)) for name in ("a.run", "b.run")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text = keeper.named("*.targets.json").read_text()
    assert "a.run" in text
    assert "b.run" in text


def test_a_draft_that_is_published_or_no_root_is_refused(keeper: Keeper) -> None:
    draft = keeper.metadata / DRAFT
    draft.write_bytes((keeper.metadata / "1.root.json").read_bytes())
    with pytest.raises(InputError, match="is not the next root: it is version 1"):
        cosign(keeper.metadata, [])
    draft.write_bytes((keeper.metadata / "timestamp.json").read_bytes())
    with pytest.raises(InputError, match="is no root"):
        cosign(keeper.metadata, [])


def test_who_signs_a_root_sees_what_it_says(keeper: Keeper) -> None:
    """Without a key, nothing is signed."""
    number = {name: load_public(keeper.key(f"{name}.pub")).keyid for name in (*ROOT_KEYS, "second")}
    old = load_public(keeper.key("release.pub")).keyid
    assert keeper.root("anna", root=("anna", "ben"), release=("second",)) == 1
    said: list[str] = []
    assert cosign(keeper.metadata, [], said.extend) == 1
    assert re.fullmatch(r"root 2, expires 20\d\d-\d\d-\d\d", said[0])
    assert said[1:] == [
        "root keys, of which 2 must sign:",
        f"  {number['anna']}",
        f"  {number['ben']}",
        f"  {number['cleo']} revoked",
        "release keys, of which 1 must sign:",
        f"  {number['second']} new",
        f"  {old} revoked",
        f"signed so far by {number['anna'][:16]}…",
    ]
    # A draft in which one of the three roles of the release keys has another key shows it.
    draft = json.loads((keeper.metadata / DRAFT).read_bytes())
    draft["signed"]["roles"]["timestamp"]["keyids"] = [number["anna"]]
    (keeper.metadata / DRAFT).write_text(json.dumps(draft))
    said.clear()
    cosign(keeper.metadata, [], said.extend)
    at = said.index("timestamp keys, of which 1 must sign:")
    assert said[at + 1] == f"  {number['anna']} new"
    assert "targets keys, of which 1 must sign:" in said


def test_a_second_file_of_one_name_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "x.run", tmp_path / "evil" / "x.run"
    second.parent.mkdir()
    for path in (first, second):
        path.write_text("")
    _check_named(first, {})
    with pytest.raises(InputError, match=f"{second} has the name of {first}"):
        _check_named(second, {"x.run": first})


def test_a_settings_file_that_is_a_link_to_nothing_is_no_licence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DDLCE_SETTINGS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / ".config" / "ddl-ce" / "settings.yaml"
    place.parent.mkdir(parents=True)
    place.symlink_to("absent")
    with pytest.raises(InputError, match=f"there is no settings file {place}"):
        load_policy()
    other = tmp_path / "other"
    other.write_text("signatures: unchecked\n")
    other.chmod(0o666)
    place.unlink()
    place.symlink_to(other)
    with pytest.raises(MachineError, match=f"{other} is not used, since "):
        load_policy()


def test_an_old_state_is_refused_after_the_root_file_is_renewed(
    keeper: Keeper, tmp_path: Path
) -> None:
    root, cache = tmp_path / "root.json", tmp_path / "cache"
    root.write_bytes((keeper.metadata / "1.root.json").read_bytes())
    wanted = Signatures(root=str(root), metadata=str(keeper.metadata))
    old = (keeper.metadata / "timestamp.json").read_bytes()
    keeper.sign()
    check_signed(wanted, cache, {})
    assert keeper.root("anna", "ben") == 0
    root.write_bytes((keeper.metadata / "2.root.json").read_bytes())
    (keeper.metadata / "timestamp.json").write_bytes(old)
    with pytest.raises(SourceError, match=r"timestamp\.json is an old one"):
        check_signed(wanted, cache, {})


def test_a_root_that_others_may_change_is_not_trusted(keeper: Keeper, tmp_path: Path) -> None:
    root = tmp_path / "root.json"
    root.write_bytes((keeper.metadata / "1.root.json").read_bytes())
    root.chmod(0o666)
    wanted = Signatures(root=str(root), metadata=str(keeper.metadata))
    with pytest.raises(MachineError, match=f"the trusted root {root} is not used, since "):
        check_signed(wanted, tmp_path / "cache", {})
    root.chmod(0o644)
    check_signed(wanted, tmp_path / "cache", {})
