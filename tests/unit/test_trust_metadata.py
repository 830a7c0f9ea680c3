"""Metadata that was tampered with is refused, each kind with a sentence; nothing is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from support.signing import Keeper
from support.trusting import Client, client, prepared

__all__ = ["client", "prepared"]  # fixtures


def truncated(pattern: str) -> Callable[[Keeper], None]:
    def work(keeper: Keeper) -> None:
        path = keeper.named(pattern)
        path.write_bytes(path.read_bytes()[:-20])

    return work


def edited(pattern: str, **changes: Any) -> Callable[[Keeper], None]:
    return lambda keeper: keeper.edit(pattern, lambda data: data["signed"].update(changes))


def forged(pattern: str) -> Callable[[Keeper], None]:
    def flip(data: Any) -> None:
        signature = data["signatures"][0]["sig"]
        data["signatures"][0]["sig"] = signature[:-1] + ("0" if signature[-1] != "0" else "1")

    return lambda keeper: keeper.edit(pattern, flip)


def unsigned(pattern: str) -> Callable[[Keeper], None]:
    return lambda keeper: keeper.edit(pattern, lambda data: data.update(signatures=[]))


def written(pattern: str, text: str) -> Callable[[Keeper], None]:
    def work(keeper: Keeper) -> None:
        keeper.named(pattern).write_text(text)

    return work


def gone(pattern: str) -> Callable[[Keeper], None]:
    return lambda keeper: keeper.named(pattern).unlink()


def endless(pattern: str) -> Callable[[Keeper], None]:
    def work(keeper: Keeper) -> None:
        path = keeper.named(pattern)
        path.unlink()
        path.symlink_to("/dev/zero")

    return work


def unreadable(pattern: str) -> Callable[[Keeper], None]:
    def work(keeper: Keeper) -> None:
        path = keeper.named(pattern)
        path.unlink()
        path.mkdir()

    return work


def swapped(pattern: str, other: str) -> Callable[[Keeper], None]:
    def work(keeper: Keeper) -> None:
        shutil.copyfile(keeper.named(other), keeper.named(pattern))

    return work


def second_root(keeper: Keeper) -> None:
    assert keeper.root("anna", "ben") == 0
    keeper.sign()


def after_root(work: Callable[[Keeper], None]) -> Callable[[Keeper], None]:
    def both(keeper: Keeper) -> None:
        second_root(keeper)
        work(keeper)

    return both


def expired_root(keeper: Keeper) -> None:
    keeper.root("anna", "ben", days=-1)
    keeper.sign()


def revoked(*roles: str) -> Callable[[Keeper], None]:
    """The release key is revoked; the thief who has it signs on."""

    def work(keeper: Keeper) -> None:
        before = {role: keeper.named(f"*{role}.json").read_bytes() for role in roles}
        keeper.root("anna", "ben", release=("second",))
        if len(roles) < 3:
            keeper.sign("second")
            for role, data in before.items():
                keeper.named(f"*{role}.json").write_bytes(data)

    return work


def taken_over(*signers: str) -> Callable[[Keeper], None]:
    """A root of other keys, signed by themselves and by too few of the old ones."""

    def work(keeper: Keeper) -> None:
        names = ("thief", "second", "cleo")
        other = Keeper(keeper.folder / "theirs")
        for name in (*names, "release"):
            for end in ("", ".pub"):
                shutil.copyfile(keeper.key(name + end), other.key(name + end))
        assert other.root("thief", "second", root=names, release=("thief",)) == 0
        assert other.root("thief", *signers, root=names, release=("thief",)) == 0
        shutil.copyfile(other.metadata / "2.root.json", keeper.metadata / "2.root.json")

    return work


def skipped(keeper: Keeper) -> None:
    keeper.root("anna", "ben")
    (keeper.metadata / "2.root.json").rename(keeper.metadata / "3.root.json")
    keeper.root("anna", "ben")
    shutil.copyfile(keeper.metadata / "3.root.json", keeper.metadata / "2.root.json")


def one_of_two(keeper: Keeper) -> None:
    """Two release keys must sign; only one has."""
    keeper.root("anna", "ben", release=("release", "second"), release_threshold=2)
    keeper.sign("release", "second")
    keeper.edit("timestamp.json", lambda data: data["signatures"].pop())


NOT_ENOUGH = "is not signed by enough of the trusted keys: "
BAD: dict[str, tuple[Callable[[Keeper], None], str]] = {
    "timestamp: changed": (
        edited("timestamp.json", version=7),
        f"timestamp.json {NOT_ENOUGH}timestamp was signed by 0/1 keys",
    ),
    "timestamp: signature changed": (
        forged("timestamp.json"),
        f"timestamp.json {NOT_ENOUGH}timestamp was signed by 0/1 keys",
    ),
    "timestamp: signature gone": (
        unsigned("timestamp.json"),
        f"timestamp.json {NOT_ENOUGH}timestamp was signed by 0/1 keys",
    ),
    "timestamp: later expiry": (
        edited("timestamp.json", expires="2999-01-01T00:00:00Z"),
        f"timestamp.json {NOT_ENOUGH}timestamp was signed by 0/1 keys",
    ),
    "snapshot: changed": (
        edited("*.snapshot.json", version=7),
        "1.snapshot.json is not the file that timestamp.json names",
    ),
    "targets: changed": (
        edited("*.targets.json", targets={}),
        "1.targets.json is not the file that snapshot.json names",
    ),
    "root: changed": (
        after_root(edited("*.root.json", expires="2999-01-01T00:00:00Z")),
        f"2.root.json {NOT_ENOUGH}root was signed by 0/2 keys",
    ),
    "root: one signature changed": (
        after_root(forged("*.root.json")),
        f"2.root.json {NOT_ENOUGH}root was signed by 1/2 keys",
    ),
    "timestamp: cut off": (truncated("timestamp.json"), "timestamp.json is no TUF metadata"),
    "snapshot: cut off": (
        truncated("*.snapshot.json"),
        "1.snapshot.json is not the file that timestamp.json names",
    ),
    "root: cut off": (after_root(truncated("*.root.json")), "2.root.json is no TUF metadata"),
    "timestamp: nested without end": (
        written("timestamp.json", "[" * 8000),
        "timestamp.json is no TUF metadata",
    ),
    "timestamp: gone": (gone("timestamp.json"), "there is no timestamp.json"),
    "snapshot: gone": (gone("*.snapshot.json"), "there is no 1.snapshot.json"),
    "targets: gone": (gone("*.targets.json"), "there is no 1.targets.json"),
    "timestamp: endless": (
        endless("timestamp.json"),
        "timestamp.json does not end where it must",
    ),
    "snapshot: endless": (
        endless("*.snapshot.json"),
        "1.snapshot.json does not end where it must",
    ),
    "targets: endless": (endless("*.targets.json"), "1.targets.json does not end where it must"),
    "root: endless": (
        after_root(endless("*.root.json")),
        "2.root.json does not end where it must",
    ),
    "timestamp: a folder": (
        unreadable("timestamp.json"),
        "timestamp.json cannot be read: Is a directory",
    ),
    "timestamp: swapped for targets": (
        swapped("timestamp.json", "*.targets.json"),
        "timestamp.json: Expected 'timestamp', got 'targets'",
    ),
    "snapshot: swapped for targets": (
        swapped("*.snapshot.json", "*.targets.json"),
        "1.snapshot.json does not end where it must",
    ),
    "root: swapped for targets": (
        after_root(swapped("*.root.json", "1.targets.json")),
        "2.root.json: Expected 'root', got 'targets'",
    ),
    "root: the first again": (
        after_root(swapped("2.root.json", "1.root.json")),
        "2.root.json is another root's file: Expected root version 2 instead got version 1",
    ),
    "root: one left out": (
        skipped,
        "2.root.json is another root's file: Expected root version 2 instead got version 3",
    ),
    "timestamp: expired": (
        lambda keeper: keeper.sign(days=-1),
        "the signature of timestamp has expired",
    ),
    "root: expired": (expired_root, "the signature of root has expired"),
    "all release roles: key revoked": (
        revoked("targets", "snapshot", "timestamp"),
        f"timestamp.json {NOT_ENOUGH}timestamp was signed by 0/1 keys",
    ),
    "timestamp: key revoked": (
        revoked("timestamp"),
        f"timestamp.json {NOT_ENOUGH}timestamp was signed by 0/1 keys",
    ),
    "root: others' keys": (
        taken_over("second"),
        f"2.root.json {NOT_ENOUGH}root was signed by 0/2 keys",
    ),
    "root: one old key stolen": (
        taken_over("cleo"),
        f"2.root.json {NOT_ENOUGH}root was signed by 1/2 keys",
    ),
    "release: threshold missed": (
        one_of_two,
        f"timestamp.json {NOT_ENOUGH}timestamp was signed by 1/2 keys",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_metadata_is_tampered_with(client: Client, name: str) -> None:
    tamper, sentence = BAD[name]
    tamper(client.keeper)
    assert client.refused(client.create) == sentence


REPLAYED = {
    "timestamp": (
        ("timestamp.json",),
        "timestamp.json is an old one: New timestamp version 1 must be >= 2",
    ),
    "all": (
        ("timestamp.json", "*.snapshot.json", "*.targets.json"),
        "timestamp.json is an old one: New timestamp version 1 must be >= 2",
    ),
}


@pytest.mark.parametrize("name", REPLAYED)
def test_metadata_is_replayed(client: Client, name: str) -> None:
    """A state that was good once, to whoever has seen a newer one."""
    patterns, sentence = REPLAYED[name]
    old = {path: path.read_bytes() for p in patterns for path in client.keeper.metadata.glob(p)}
    client.keeper.sign()
    client.good()
    for path, data in old.items():
        path.write_bytes(data)
    assert client.refused(client.create) == sentence


@pytest.mark.parametrize(("role", "other"), [("snapshot", "timestamp"), ("targets", "snapshot")])
def test_an_old_file_under_a_new_name(client: Client, role: str, other: str) -> None:
    old = client.keeper.named(f"*.{role}.json").read_bytes()
    client.keeper.sign()
    (client.keeper.metadata / f"2.{role}.json").write_bytes(old)
    said = client.refused(client.create)
    assert said == f"2.{role}.json is not the file that {other}.json names"
