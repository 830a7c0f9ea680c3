"""A site of plain files, and machines without a source tree that install from it over HTTP."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError

from ddlce.engine.index import index_channel
from ddlce.files import sha256_file
from ddlce.model.envlock import EnvLock
from ddlce.trust.keys import load_public
from ddlce.trust.names import lock_name
from support.minichannel import Pkg, pack
from support.minienv import Site, as_served, everything, served, toy_site
from support.run import ok
from support.signing import Keeper

NO_EXTRAS = ("--no-bundle", "--no-sbom")


@pytest.fixture
def maker(tmp_path: Path) -> Site:
    """Who builds: a tree, a channel and a lock."""
    return toy_site(tmp_path / "maker")


@pytest.fixture
def www(maker: Site, tmp_path: Path) -> Path:
    """The folder of the site."""
    return tmp_path / "www"


@pytest.fixture
def user(tmp_path: Path) -> Site:
    """Who installs: no tree at all."""
    made = Site(tmp_path / "user", "")
    shutil.rmtree(made.repo)
    made.extra["DDLCE_REPO"] = ""
    return made


@pytest.fixture
def url(www: Path, published: None) -> Iterator[str]:
    with served(www) as address:
        yield address


@pytest.fixture
def published(maker: Site, www: Path) -> None:
    publish(maker, www)


def publish(maker: Site, www: Path, *options: str | Path) -> str:
    return maker.ok("publish", www, "mini", "--channel", maker.channel, *NO_EXTRAS, *options)


def create(user: Site, url: str, *options: str | Path) -> tuple[str | Path, ...]:
    return ("env", "create", "mini", "--from", url, *options)


def fails(user: Site, code: int, *words: str | Path) -> str:
    """It says one sentence and a hint, and leaves nothing in the root."""
    done = user.ddlce(*words)
    assert done.returncode == code, done
    lines = done.stderr.splitlines()
    assert [line[:7] for line in lines] == ["error: ", "hint:  "], done.stderr
    assert everything(user.root) == []
    return lines[0].removeprefix("error: ")


def release_again(maker: Site, release: str) -> None:
    """Lock the environment as another release."""
    text = maker.manifest.read_text()
    maker.manifest.write_text(text.replace('release: "2026.', f'release: "{release}" # "2026.'))
    maker.ok("lock", "mini")


def test_a_release_is_installed_with_no_tree(user: Site, url: str, www: Path) -> None:
    ok(user.ddlce(*create(user, url)))
    assert user.current.name.startswith("2026.11-")
    assert (user.current / "etc" / "toy").read_text() == f"{user.current}\n"
    assert f"{url}/channel" in (user.current / ".condarc").read_text()
    assert (user.current / "conda-meta" / "ddl-ce.lock").read_text() == next(
        (www / "releases").glob("*/*.lock")
    ).read_text()
    assert [path.name for path in (user.cache).glob("from-*")] == ["from-lock"]
    assert "is there already" in user.ddlce(*create(user, url)).stdout
    ok(user.ddlce("module", "mini"))


def test_statements_say_what_each_package_was_made_of(tmp_path: Path) -> None:
    """They are signed by the release key, and the list of signed files names them."""
    inputs = {"file recipe.yaml": f"-{'a' * 64}", "engine": "1.2"}
    said = {"digest": "d" * 64, "recipe": "toys", "inputs": inputs}
    toy = Pkg("toy", files={"etc/toy": "toy\n", "info/ddl-ce.json": json.dumps(said)})
    maker, keeper = toy_site(tmp_path / "maker", toy), Keeper(tmp_path / "keys")
    keeper.root("anna", "ben")
    www = tmp_path / "www"
    publish(maker, www, "--sign", keeper.key("release"), "--metadata", keeper.metadata)
    (path,) = (www / "releases").glob("*/mini-2026.11-linux-64.intoto.jsonl")
    (line,) = path.read_text().splitlines()
    envelope = Envelope.from_dict(json.loads(line))
    envelope.verify([load_public(keeper.key("release.pub"))], 1)
    with pytest.raises(VerificationError):
        envelope.verify([load_public(keeper.key("thief.pub"))], 1)
    statement = json.loads(envelope.payload)
    lock = EnvLock.load(maker.lock)
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [
        {
            "name": "linux-64/toy-1.0-h0_0.conda",
            "digest": {"sha256": lock.packages[0].sha256},
            "annotations": {"size": lock.packages[0].size},
        }
    ]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"recipe": "toys", "platform": "linux-64"}
    assert definition["internalParameters"] == {"digest": "d" * 64}
    assert definition["resolvedDependencies"] == [
        {"name": "engine", "annotations": {"value": "1.2"}},
        {"name": "file recipe.yaml", "digest": {"sha256": "a" * 64}},
    ]
    targets = json.loads((www / "channel/metadata/1.targets.json").read_text())
    assert targets["signed"]["targets"][path.name]["hashes"]["sha256"] == sha256_file(path)


def test_a_folder_is_a_site_too(user: Site, www: Path, published: None) -> None:
    assert user.ddlce(*create(user, str(www))).returncode == 0
    assert user.ddlce("env", "verify", "mini").returncode == 0


def test_the_newest_release_or_the_one_that_is_named(maker: Site, user: Site, www: Path) -> None:
    publish(maker, www)
    for release in ("2026.9", "2026.12"):
        release_again(maker, release)
        publish(maker, www)
    with served(www) as url:
        assert user.ddlce(*create(user, url)).returncode == 0
        assert user.current.name.startswith("2026.12-")
        assert user.ddlce(*create(user, url, "--release", "2026.11")).returncode == 0
        assert user.current.name.startswith("2026.11-")
    said = json.loads((www / "releases.json").read_text())
    assert [one["release"] for one in said["releases"]] == ["2026.12", "2026.11", "2026.9"]
    publish(maker, www, "--keep", "2")
    names = {path.name.split("-")[1] for path in (www / "releases").iterdir() if path.is_dir()}
    assert names == {"2026.12", "2026.11", "2026.9"}, "of the last listing: somebody may read it"
    publish(maker, www, "--keep", "2")
    names = {path.name.split("-")[1] for path in (www / "releases").iterdir() if path.is_dir()}
    assert names == {"2026.12", "2026.11"}
    maker.ok("publish", www, "--withdraw", "mini-2026.11-linux-64")
    folders = [path.name for path in (www / "releases").iterdir() if path.is_dir()]
    assert len(folders) == 1
    said = maker.fails(2, "publish", www, "--withdraw", "mini-2026.11-linux-64")
    assert "--withdraw mini-2026.11-linux-64: there is no such release" in said


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--release", "1.0"], 2, "{url} has no mini 1.0 for linux-64"),
        (["--lock", "x"], 2, "--lock does not go with --from"),
        (["--channel", "x"], 2, "--channel does not go with --from"),
        (["--platform", "linux-ppc64le"], 2, "{url} has no mini for linux-ppc64le"),
    ],
)
def test_what_a_site_has_not(
    user: Site, url: str, options: list[str], code: int, said: str
) -> None:
    assert fails(user, code, *create(user, url, *options)) == said.format(url=url)


def test_what_is_no_site(user: Site, www: Path, url: str) -> None:
    listing = www / "releases.json"
    assert fails(user, 4, *create(user, f"{url}/channel")) == (
        f"{url}/channel/releases.json: there is no releases.json"
    )
    listing.write_text('{"version": 1, "releases": [{"env": "../x"}]}')
    assert "no list of releases: releases.0.env: " in fails(user, 4, *create(user, url))
    listing.write_text("<html>")
    assert "no list of releases: " in fails(user, 4, *create(user, url))
    assert "cannot be read" in fails(user, 4, *create(user, "http://127.0.0.1:9"))


@pytest.mark.parametrize("pattern", ["releases/*/*.lock", "releases/*/condarc.j2"])
def test_a_byte_is_changed_on_the_site(user: Site, www: Path, url: str, pattern: str) -> None:
    (path,) = www.glob(pattern)
    path.write_bytes(path.read_bytes() + b" ")
    said = fails(user, 4, *create(user, url))
    assert said == f"{url}/{path.relative_to(www)} is not the file that releases.json names"


def test_a_package_is_changed_on_the_site(user: Site, www: Path, url: str) -> None:
    (path,) = (www / "channel" / "linux-64").glob("toy-*.conda")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)
    done = user.ddlce(*create(user, url))
    assert done.returncode == 4, done
    assert "toy" in done.stderr
    assert not (user.root / "envs" / "mini" / "current").exists()


@pytest.fixture
def keeper(maker: Site, tmp_path: Path) -> Keeper:
    """Who signs: the roots are kept with the maker's channel."""
    made = Keeper(tmp_path / "keeper")
    made.metadata = Path(maker.channel) / "metadata"
    assert made.root("anna", "ben") == 0
    return made


def test_a_signed_site(maker: Site, user: Site, www: Path, keeper: Keeper) -> None:
    assert "1 releases, signed" in publish(maker, www, "--sign", keeper.key("release"))
    first = (www / "releases.json").read_bytes()
    with served(www) as url:
        keeper.metadata = www / "channel" / "metadata"
        keeper.settings_file()
        settings = keeper.folder / "settings.yaml"
        settings.write_text(settings.read_text().replace(str(www), url))
        user.extra["DDLCE_SETTINGS"] = str(settings)
        assert user.ddlce(*create(user, url)).returncode == 0
        assert user.ddlce("env", "clone", "mine").returncode == 0
        # Without a key the site would be refused, so it is not written.
        release_again(maker, "2026.12")
        said = maker.fails(2, "publish", www, "mini", "--channel", maker.channel, *NO_EXTRAS)
        assert "is signed, and would be refused without new signatures" in said
        publish(maker, www, "--sign", keeper.key("release"))
        assert user.ddlce(*create(user, url)).returncode == 0
        assert user.current.name.startswith("2026.12-")
        # An older listing hides a release; only the signed one is read.
        second = (www / "releases.json").read_bytes()
        (www / "releases.json").write_bytes(first)
        done = user.ddlce(*create(user, url))
        assert "2026.12-" in done.stdout, done
        (www / "releases.json").write_text("{}")
        assert user.ddlce(*create(user, url)).returncode == 0
        for path in (www / "releases").glob("*.json"):
            path.write_bytes(first)
        done = user.ddlce(*create(user, url))
        assert done.returncode == 4
        assert "is not the signed one" in done.stderr
        again = ("--sign", keeper.key("release"), "--withdraw", "mini-2026.11-linux-64")
        said = maker.fails(1, "publish", www, *again)
        assert f"{www}/releases.json: damaged: version: Field required" in said
        (www / "releases.json").write_bytes(second)
        maker.ok("publish", www, *again)
        done = user.ddlce(*create(user, url, "--release", "2026.11"))
        assert "has no mini 2026.11" in done.stderr
        targets = json.loads(keeper.named("*.targets.json").read_text())["signed"]["targets"]
        locks = [name for name in targets if name.startswith("mini-") and name.endswith(".lock")]
        assert [name[:13] for name in locks] == ["mini-2026.12-"]


def test_a_release_that_another_of_its_version_replaced(
    maker: Site, user: Site, www: Path, keeper: Keeper
) -> None:
    """Whoever has it may clone it, until it is withdrawn."""
    key = ("--sign", keeper.key("release"))
    publish(maker, www, *key)
    first = EnvLock.load(maker.lock)
    with served(www) as url:
        keeper.metadata = www / "channel" / "metadata"
        keeper.settings_file()
        user.extra["DDLCE_SETTINGS"] = str(keeper.folder / "settings.yaml")
        user.extra["DDLCE_CHANNEL"] = f"{url}/channel"
        assert user.ddlce(*create(user, url)).returncode == 0
        maker.manifest.write_text(maker.manifest.read_text() + "  - mini-more\n")
        pack(Pkg("mini-more", files={"share/more": "more\n"}), Path(maker.channel))
        index_channel(Path(maker.channel))
        maker.ok("lock", "mini")
        second = EnvLock.load(maker.lock)
        assert (first.release, first.digest) != (second.release, second.digest)
        publish(maker, www, *key)
        done = ok(user.ddlce("env", "clone", "mine"))
        assert user.ddlce(*create(user, url)).returncode == 0
        assert user.current.name == f"2026.11-{second.digest[:8]}"
        maker.ok("publish", www, *key, "--withdraw", "mini-2026.11-linux-64")
        for release in (first, second):
            source = f"mini/2026.11-{release.digest[:8]}"
            done = user.ddlce("env", "clone", "other", "--from", source)
            assert done.returncode == 4
            assert f"{lock_name(release)} is not among the signed files" in done.stderr


def test_two_sites_of_the_same_releases_are_the_same_bytes(
    maker: Site, tmp_path: Path, keeper: Keeper
) -> None:
    maker.extra["SOURCE_DATE_EPOCH"] = "1790000000"
    one, two = tmp_path / "one", tmp_path / "two"
    found = []
    for folder in (one, one, two):
        publish(maker, folder, "--sign", keeper.key("release"))
        found.append(as_served(folder))
    assert found[0] == found[1] == found[2]
    assert {"releases.json", "channel/linux-64/repodata.json"} <= {*found[0]}
    assert "channel/metadata/1.targets.json" in found[0]
    assert "channel/metadata/2.targets.json" not in found[1]


def test_another_user_may_not_change_the_site(maker: Site, tmp_path: Path) -> None:
    www = tmp_path / "open"
    www.mkdir()
    www.chmod(0o777)
    said = maker.fails(3, "publish", www, "mini", "--channel", maker.channel, *NO_EXTRAS)
    assert "may be changed by everybody" in said
    assert everything(www) == []


def test_a_package_that_is_not_there(maker: Site, www: Path) -> None:
    (path,) = Path(maker.channel).glob("linux-64/toy-*.conda")
    path.unlink()
    said = maker.fails(4, "publish", www, "mini", "--channel", maker.channel, *NO_EXTRAS)
    assert f"{path}: missing" in said
    assert not (www / "releases.json").exists()
