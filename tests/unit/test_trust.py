"""What is not signed as it must be is refused with a sentence of its own; nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ddlce.errors import InputError, MachineError, SourceError
from ddlce.trust.client import CHECKED, check_signed
from ddlce.trust.keys import load_public, load_signer, new_key
from ddlce.trust.policy import Signatures, load_policy
from support.minienv import everything
from support.run import run
from support.signing import Keeper, answering
from support.trusting import KINDS, LOCK, Client, client, prepared

__all__ = ["client", "prepared"]  # fixtures


def test_what_is_signed_is_taken(client: Client) -> None:
    client.good()
    client.keeper.sign()  # another set
    client.good()
    client.keeper.root("ben", "cleo", release=("second",))  # another key
    client.keeper.sign("second")
    client.good()


def test_signatures_are_checked_without_cryptography(client: Client) -> None:
    """An environment has none: tuf checks ed25519 in pure Python then."""
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from ddlce.cli.app import main; sys.argv = ['ddlce', *sys.argv[1:]]; main()"
    )
    path = client.keeper.files / LOCK
    command = [sys.executable, "-c", program, "keys"]
    done = run([*command, "check", str(path)])
    assert (done.returncode, done.stdout.strip()) == (0, f"{path} is signed"), done
    client.keeper.edit("timestamp.json", lambda data: data["signed"].update(version=2))
    done = run([*command, "check", str(path)])
    assert done.returncode == 4
    assert "timestamp was signed by 0/1 keys" in done.stderr
    done = run([*command, "new", str(client.folder / "key")])
    assert done.returncode == 3
    assert "this ddlce cannot sign, as it has no cryptography" in done.stderr
    assert not (client.folder / "key").exists()


def test_a_ddlce_without_tuf_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tuf.ngclient", None)
    said = client.refused(client.create)
    assert said.startswith("this ddlce cannot check signatures, as it has no tuf")


@pytest.mark.parametrize("kind", KINDS)
def test_a_byte_of_a_file_is_changed(client: Client, kind: str) -> None:
    path = client.keeper.files / KINDS[kind]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    said = client.refused(lambda: client.check(path.name))
    assert said.startswith(f"{path.name} is not the signed one: its sha256 is ")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_swapped_for_another_that_is_signed(client: Client, kind: str) -> None:
    path = client.keeper.files / KINDS[kind]
    other = KINDS["index" if kind != "index" else "SBOM"]
    shutil.copyfile(client.keeper.files / other, path)
    said = client.refused(lambda: client.check(path.name))
    assert said.startswith(f"{path.name} is not the signed one")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_was_withdrawn(client: Client, kind: str) -> None:
    client.good()
    path = client.keeper.files / KINDS[kind]
    moved = path.rename(client.keeper.folder / path.name)
    client.keeper.sign(withdrawn=(path.name,))
    moved.rename(path)
    said = client.refused(lambda: client.check(path.name))
    assert said == f"{path.name} is not among the signed files"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_replayed(client: Client, kind: str) -> None:
    """An older file that was signed once, beside the metadata of today."""
    path = client.keeper.files / KINDS[kind]
    old = path.read_bytes()
    path.write_bytes(old + b"# newer\n")
    client.keeper.sign()
    client.check(path.name)
    path.write_bytes(old)
    said = client.refused(lambda: client.check(path.name))
    assert said.startswith(f"{path.name} is not the signed one")


def test_the_clock_is_set_back(client: Client, tmp_path: Path) -> None:
    """So that signatures that have expired would count again."""
    client.good()
    [seen] = (tmp_path / "cache" / "trust").glob(f"*/{CHECKED}")
    later = datetime.now(UTC) + timedelta(days=40)
    seen.write_text(later.isoformat() + "\n")
    said = client.refused(client.create)
    assert said.startswith("the clock was set back: it is 20")
    assert f"the last check was at {later:%Y-%m-%d %H:%M} UTC" in said
    seen.write_text("no time\n")
    client.good()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("500", "the server answers 500 for timestamp.json"),
        ("404", "there is no timestamp.json"),
        ("cut", "timestamp.json cannot be read: "),
        ("drip", "timestamp.json comes too slowly"),
        ("endless", "timestamp.json does not end where it must"),
    ],
)
def test_a_server_misbehaves(
    client: Client, answer: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddlce.trust.fetcher.ALL_S", 0.3)
    with answering({"/timestamp.json": answer}) as url:
        wanted = Signatures(root=str(client.keeper.folder / "trusted.json"), metadata=url)
        with pytest.raises(SourceError) as caught:
            check_signed(wanted, client.folder / "cache", {LOCK: "0" * 64})
    assert caught.value.message.startswith(f"{url}: {sentence}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{}", " is refused: root.json is no TUF metadata"),
        (None, " cannot be read: No such file or directory"),
    ],
)
def test_the_trusted_root_is_none(client: Client, text: str | None, sentence: str) -> None:
    path = client.folder / "root.json"
    if text is not None:
        path.write_text(text)
    wanted = Signatures(root=str(path), metadata=str(client.keeper.metadata))
    with pytest.raises(InputError) as caught:
        check_signed(wanted, client.folder / "cache", {LOCK: "0" * 64})
    assert caught.value.message == f"the trusted root {path}{sentence}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("signatures: none\n", "signatures"),
        ("signatures: {root: root.json, metadata: /x}\n", "signatures"),
        ("signatures: {root: /root.json, metadata: 'ftp://x'}\n", "signatures"),
        ("", "the file: it says nothing"),
        ("trust: me\nsignatures: unchecked\n", "trust: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_settings_file(client: Client, text: str, sentence: str) -> None:
    path = Path(os.environ["DDLCE_SETTINGS"])
    path.write_text(text)
    assert client.refused(client.create).startswith(f"{path}: {sentence}")


def test_a_settings_file_that_others_may_change(client: Client) -> None:
    path = Path(os.environ["DDLCE_SETTINGS"])
    path.chmod(0o666)
    said = client.refused(client.create)
    assert said == f"{path} is not used, since everybody may write {path}"
    path.unlink()
    assert client.refused(client.create) == f"there is no settings file {path}"


def test_a_site_that_wants_no_signatures_is_told_so_each_time(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(os.environ["DDLCE_SETTINGS"])
    path.write_text("signatures: unchecked\n")
    with pytest.raises(SourceError, match=r"empty|conda"):
        client.create()
    said = capsys.readouterr().err
    assert said.startswith(f"WARNING: nobody checks who made {LOCK}: signatures are unchecked in ")
    with pytest.raises(InputError, match="no settings file says whose signatures are wanted"):
        client.check(LOCK)


def test_without_a_settings_file_nothing_is_asked(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DDLCE_SETTINGS")
    monkeypatch.setattr("ddlce.trust.policy.SITE_SETTINGS", tmp_path / "none.yaml")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_policy() is None
    own = tmp_path / ".config" / "ddl-ce" / "settings.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("signatures: unchecked\n")
    found = load_policy()
    assert found is not None
    assert found.signatures == "unchecked"


def test_keys_are_the_owner_s_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key"
    before = os.umask(0)
    try:
        new_key(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_signer(path).public_key.keyid == load_public(tmp_path / "key.pub").keyid
    for there in (path, tmp_path / "key.pub"):
        data = there.read_bytes()
        with pytest.raises(InputError, match="is there already"):
            new_key(path)
        assert there.read_bytes() == data
    path.chmod(0o640)
    with pytest.raises(MachineError, match="others may read this key"):
        load_signer(path)
    (tmp_path / "text").write_text("no key\n")
    (tmp_path / "text").chmod(0o600)
    with pytest.raises(InputError, match="text: no private key"):
        load_signer(tmp_path / "text")
    for bad in ("text", "absent"):
        with pytest.raises(InputError, match=f"{bad}: no public key"):
            load_public(tmp_path / bad)


def test_a_key_whose_making_was_killed_between_its_two_files(tmp_path: Path) -> None:
    path = tmp_path / "key"
    number = new_key(path)
    (tmp_path / "key.pub").unlink()
    (tmp_path / f".key.{os.geteuid()}.new").write_text("half")
    private = path.read_bytes()
    assert new_key(path) == number
    assert path.read_bytes() == private
    assert load_public(tmp_path / "key.pub").keyid == number
    (tmp_path / "key.pub").unlink()
    path.write_text("no key of ours\n")
    with pytest.raises(InputError, match="key: no private key"):
        new_key(path)
    assert not (tmp_path / "key.pub").exists()
    assert [p.name for p in tmp_path.glob(".*.lock")] == []


def test_a_root_is_signed_by_its_owners_one_after_another(prepared: Keeper, tmp_path: Path) -> None:
    from ddlce.trust.names import DRAFT
    from ddlce.trust.repository import cosign

    keeper = prepared.copy(tmp_path / "keeper")
    draft, second = keeper.metadata / DRAFT, keeper.metadata / "2.root.json"
    assert keeper.root("cleo", release=("second",)) == 1
    assert draft.is_file()
    assert not second.exists()
    with pytest.raises(InputError, match="is no root key"):
        cosign(keeper.metadata, [load_signer(keeper.key("thief"))])
    assert cosign(keeper.metadata, [load_signer(keeper.key("cleo"))]) == 1  # again the same
    assert cosign(keeper.metadata, [load_signer(keeper.key("anna"))]) == 0
    assert second.is_file()
    assert not draft.exists()
    with pytest.raises(InputError, match=r"root\.draft\.json: missing"):
        cosign(keeper.metadata, [])
    with pytest.raises(InputError, match=r"these keys cannot sign for root 2: .*0/1 keys"):
        keeper.sign("release")
    with pytest.raises(InputError, match="4 of 3 root keys cannot sign"):
        keeper.root("anna", threshold=4)
    with pytest.raises(InputError, match="other is not signed in"):
        keeper.sign("second", withdrawn=("other",))


def test_signatures_before_a_root(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.files.mkdir()
    with pytest.raises(InputError, match="has no root"):
        keeper.sign()


def test_metadata_is_what_the_specification_says(prepared: Keeper) -> None:
    """Plain files that other clients of TUF read."""
    names = sorted(path.name for path in prepared.metadata.iterdir())
    assert names == ["1.root.json", "1.snapshot.json", "1.targets.json", "timestamp.json"]
    targets = json.loads((prepared.metadata / "1.targets.json").read_bytes())["signed"]
    assert set(targets["targets"]) == set(KINDS.values())
    root = json.loads((prepared.metadata / "1.root.json").read_bytes())["signed"]
    assert root["roles"]["root"]["threshold"] == 2
    assert len(root["roles"]["root"]["keyids"]) == 3
    assert everything(prepared.metadata) != []
