"""Commands ask for signatures before they unpack anything, where the settings file says so."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from ddlce.bundle.description import HEADER
from ddlce.cli import unbundle
from ddlce.errors import SourceError
from ddlce.model.envlock import EnvLock, LockedPackage
from ddlce.trust.keys import load_signer
from ddlce.trust.names import index_files, lock_name
from ddlce.trust.packages import check_packages
from ddlce.trust.policy import Signatures
from ddlce.trust.repository import sign_files
from support.bundles import toy_bundle, toy_lock
from support.minienv import Site, everything, served
from support.run import ok
from support.signing import Keeper


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    made = Keeper(tmp_path / "keeper")
    made.files.mkdir()
    assert made.root("anna", "ben") == 0
    return made


def trust(site: Site, keeper: Keeper) -> None:
    site.extra["DDLCE_SETTINGS"] = str(keeper.settings_file())


def test_a_release_is_installed_and_cloned_only_while_it_is_signed(
    site: Site, keeper: Keeper
) -> None:
    site.ok("lock", "mini", "--channel", site.channel)
    lock = EnvLock.load(site.lock)
    signed = keeper.files / lock_name(lock)
    signed.write_text(site.lock.read_text())
    keeper.sign()
    trust(site, keeper)
    create = ("env", "create", "mini", "--channel", site.channel)
    site.ok(*create)
    site.ok("env", "clone", "mine")
    signed.unlink()
    keeper.sign(withdrawn=(signed.name,))
    missing = f"{signed.name} is not among the signed files"
    assert missing in site.fails(4, "env", "clone", "other")
    assert not (site.clones / "other").exists()
    other = site.folder / "elsewhere"
    assert missing in site.fails(4, *create, "--root", other)
    assert not other.exists()
    (keeper.folder / "settings.yaml").write_text("signatures: unchecked\n")
    done = ok(site.ddlce("env", "clone", "other"))
    assert f"WARNING: nobody checks who made {signed.name}" in done.stderr


def test_packages_beside_the_lock_are_those_of_the_signed_index(site: Site, keeper: Keeper) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    site.ok("env", "clone", "mine")
    add = ("env", "install", "mine", "mini-more")
    trust(site, keeper)
    keeper.sign()
    said = site.fails(4, *add)
    assert "linux-64/repodata.json is not among the signed files" in said
    channel = Path(site.channel)
    signers = [load_signer(keeper.key("release"))]
    sign_files(keeper.metadata, index_files(channel), signers, 30)
    index = channel / "linux-64" / "repodata.json"
    text = index.read_text()
    index.write_text(text + " ")
    said = site.fails(4, *add)
    assert f"{index.as_uri()} is not the signed one" in said
    assert not (site.clones / "mine" / "share" / "more.txt").exists()
    # An index with one more package that the signed one has not: the clients' other forms of it.
    index.write_text(text)
    with served(channel) as url:
        assert "+ mini-more 1.0 h0_0" in site.ok(*add, "--channel", url)
    # A package that its index has not, and one that another channel has.
    package = LockedPackage.of(
        {"name": "x", "version": "1", "build": "0", "subdir": "linux-64", "file": "x-1-0.conda"}
        | {"sha256": "0" * 64, "size": 1},
        "x",
    )
    signed = Signatures(root=str(keeper.folder / "trusted.json"), metadata=str(keeper.metadata))
    channels = {"ddl-ce": channel.as_uri()}
    with pytest.raises(SourceError, match=r"x-1-0\.conda is not in the signed index of file:///"):
        check_packages(signed, site.cache, [package], channels)
    other = package.model_copy(update={"channel": "https://example.org/c"})
    with pytest.raises(SourceError, match=r"of the channel https://example\.org/c, which nobody"):
        check_packages(signed, site.cache, [other], channels)
    (keeper.folder / "settings.yaml").write_text("signatures: unchecked\n")
    site.ok("env", "clone", "other")
    done = ok(site.ddlce("env", "install", "other", "mini-more"))
    assert "WARNING: nobody checks who made mini-more: signatures are unchecked" in done.stderr


def test_what_was_locked_here_needs_no_signature_to_be_fetched_from(
    site: Site, keeper: Keeper
) -> None:
    """The list of sources is signed; another one is refused before anything is fetched."""
    (site.repo / "sources.lock").write_text("sources: []\n")
    (keeper.files / "sources.lock").write_text("sources: []\n")
    keeper.sign()
    trust(site, keeper)
    site.ok("fetch")
    (site.repo / "sources.lock").write_text("sources: [ ]\n")
    said = site.fails(4, "fetch")
    assert "sources.lock is not the signed one: its sha256 is" in said
    assert not (site.cache / "sources").exists()


def test_a_bundle_asks_before_it_fills_the_root(
    tmp_path: Path, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = Path(toy_bundle(tmp_path / "made").path)
    with bundle.open("rb") as stream:
        stream.seek(HEADER)
        with tarfile.open(fileobj=stream, mode="r:") as first:
            first.extractall(tmp_path / "stage", filter="fully_trusted")
    keeper.sign()
    monkeypatch.setenv("DDLCE_SETTINGS", str(keeper.settings_file()))
    monkeypatch.setenv("DDLCE_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "root"
    words = [
        str(bundle),
        "--channel-at",
        "0",
        "--stage",
        str(tmp_path / "stage"),
        "--root",
        str(root),
    ]
    monkeypatch.setattr(sys, "argv", ["bundle", *words])
    name = lock_name(toy_lock(tmp_path / "made" / "channel"))
    with pytest.raises(Exception, match=f"{name} is not among the signed files"):
        unbundle.main()
    assert not root.exists() or everything(root) == []


def test_keys_are_made_and_used_by_commands(site: Site, tmp_path: Path) -> None:
    """As the site guide has it: two of three root keys, a release key, a bundle."""
    site.ok("lock", "mini", "--channel", site.channel)
    keys = tmp_path / "keys"
    keys.mkdir()
    for name in ("anna", "ben", "cleo", "release"):
        assert f"{keys / name}.pub: key " in site.ok("keys", "new", keys / name)
    roles = [f"--root-key={keys / name}.pub" for name in ("anna", "ben", "cleo")]
    roles += ["--threshold", "2", "--release-key", f"{keys / 'release'}.pub"]
    metadata = site.repo / "channel" / "metadata"
    said = site.ok("keys", "root", *roles, "--sign", keys / "anna")
    assert said.strip() == f"{metadata}/root.draft.json: 1 more signature is missing"
    said = site.ok("keys", "cosign", "--sign", keys / "ben")
    assert said.splitlines()[-1].startswith(f"{metadata}/1.root.json: expires 20")
    bundle = tmp_path / "mini.run"
    bundle.write_text("a bundle\n")
    assert "there is no such file" in site.fails(
        2, "keys", "sign", "absent", "--sign", keys / "release"
    )
    said = site.ok("keys", "sign", bundle, "--sign", keys / "release")
    assert {"mini.run", lock_name(EnvLock.load(site.lock))} <= set(said.split())
    assert "no settings file says" in site.fails(2, "keys", "check", bundle)
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"signatures:\n  root: {metadata}/1.root.json\n  metadata: {metadata}\n")
    site.extra["DDLCE_SETTINGS"] = str(settings)
    assert site.ok("keys", "check", bundle).strip() == f"{bundle} is signed"
    bundle.write_text("a bundlf\n")
    assert "mini.run is not the signed one" in site.fails(4, "keys", "check", bundle)
    assert "there is no such file" in site.fails(2, "keys", "check", tmp_path / "absent")
    site.lock.write_text(site.lock.read_text() + "# mine\n")
    assert "changed by hand" in site.fails(2, "keys", "sign", "--sign", keys / "release")
