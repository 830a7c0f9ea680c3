"""The lock file's model: stable text, and damage that is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddlce.env.create import missing_driver
from ddlce.errors import InputError
from ddlce.lock import _compare, required_by
from ddlce.model.envlock import EnvLock, LockedPackage
from support import lockpair
from support.lockpair import SHA


def package(name: str, **fields: Any) -> LockedPackage:
    data = {"build": "0", "file": f"{name}-1.0-0.conda", "size": 10, **fields}
    return lockpair.package(name, **data)


def lock(*packages: LockedPackage) -> EnvLock:
    return lockpair.lock(*packages, specs=["b >=1"])


def test_round_trip_keeps_text_and_digest(tmp_path: Path) -> None:
    made = lock(package("a", version="1.10", depends=["b >=1", "python 3.11.*"]), package("b"))
    path = tmp_path / "toy.lock"
    path.write_text(made.to_yaml())
    read = EnvLock.load(path)
    assert read == made
    assert read.to_yaml() == path.read_text()
    assert read.digest == made.digest


def test_urls_come_from_the_channel_that_is_given() -> None:
    own = package("a")
    other = package("a", channel="https://example.org/c")
    addresses = {"ddl-ce": "file:///x/"}
    assert own.url(addresses) == "file:///x/linux-64/a-1.0-0.conda"
    assert other.url(addresses) == "https://example.org/c/linux-64/a-1.0-0.conda"


def test_who_needs_what() -> None:
    made = lock(package("a", depends=["b>=1"]), package("b", depends=["a"]), package("c"))
    assert required_by(made) == {"a": ["b"], "b": ["manifest", "a"], "c": []}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (SHA, "zz", "not a lock: manifest: String should match pattern '^[0-9a-f]{64}$'"),
        (
            "size: 10",
            "size: ten",
            "not a lock: package a: size: Input should be a valid integer",
        ),
        ("a-1.0-0.conda", "../a.conda", "not a lock: package a: file: String should match"),
        ("version: 1\n", "version: 2\n", "not a lock: version: Input should be 1"),
        ("env: toy", "env: [toy", "toy.lock:5: not a lock: not valid YAML"),
        ("'2.28'", "2.28-x", "not a lock: virtual_packages: __glibc: String should match"),
        ("name: b", "name: a", "packages must be sorted by name, each once"),
    ],
)
def test_damage_is_told(tmp_path: Path, old: str, new: str, expected: str) -> None:
    path = tmp_path / "toy.lock"
    text = lock(package("a"), package("b")).to_yaml()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        EnvLock.load(path)
    assert expected in caught.value.message
    assert str(path) in caught.value.message


LEAVING = {
    "env": ("env: toy", "env: ../../toy"),
    "env: .": ("env: toy", "env: .."),
    "release": ("release: '2026.11'", "release: /etc"),
    "platform": ("platform: linux-64", "platform: ../x"),
    "name": ("name: b", "name: b/../../x"),
    "version": ("version: '1.0'", "version: ../1.0"),
    "build": ("build: '0'", "build: 0/../../x"),
    "subdir": ("subdir: linux-64", "subdir: ../.."),
    "file": ("file: b-1.0-0.conda", "file: ../../b-1.0-0.conda"),
    "site": ("size: 10", "size: 10\n  python_site_packages_path: ../../x"),
}


@pytest.mark.parametrize("field", LEAVING)
def test_no_field_leads_out_of_a_folder(tmp_path: Path, field: str) -> None:
    old, new = LEAVING[field]
    path = tmp_path / "toy.lock"
    text = lock(package("b")).to_yaml()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=f"{path}: not a lock: ") as caught:
        EnvLock.load(path)
    assert "should match pattern" in str(caught.value) or "leads outside" in str(caught.value)


def test_a_record_of_elsewhere_is_told_of_by_its_place() -> None:
    with pytest.raises(InputError, match=r"https://x.org/c: package \.\./a: name: String should"):
        LockedPackage.of({"name": "../a"}, "https://x.org/c")


def test_missing_lock(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no lock") as caught:
        EnvLock.load(tmp_path / "toy.lock")
    assert caught.value.hint == "make it with: ddlce lock"


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ("", "toy needs a driver for CUDA 13.0 where it runs; this machine's is missing"),
        ("12.9", "toy needs a driver for CUDA 13.0 where it runs; this machine's is for CUDA 12.9"),
        ("13.0", ""),
    ],
)
def test_a_driver_that_will_not_do_is_told(
    monkeypatch: pytest.MonkeyPatch, driver: str, said: str
) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", driver)
    without = lock(package("b"))
    virtual = {**without.virtual_packages, "__cuda": "13.0"}
    assert missing_driver(without) == ""
    assert missing_driver(without.model_copy(update={"virtual_packages": virtual})) == said


def test_two_locks_at_once_keep_the_release_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other writes the next release's lock while this one looks into the old."""
    old = lock(package("a"))
    new = old.model_copy(update={"release": "2026.12"})
    target = tmp_path / "toy.linux-64.lock"
    target.write_text(old.to_yaml())
    read = EnvLock.load

    def load(path: Path) -> EnvLock:
        found = read(path)
        path.write_text(new.to_yaml())
        return found

    monkeypatch.setattr(EnvLock, "load", load)
    assert _compare("linux-64", target, new, check=False).state == "written"
    assert read(target) == new
    assert read(tmp_path / "2026.11" / target.name) == old
