"""A cache of built packages: what is taken from it, and what is refused by name and built here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope

from ddlce.env.layout import Layout
from ddlce.trust.keys import load_signer, new_key
from support.minienv import served
from support.minitree import MiniTree, make_tree, suite_release
from support.run import ok


@dataclass
class Shared:
    """A cache that one machine has filled.

    Attributes:
        folder: of the cache.
        keys: the builder's key, and a thief's.
        builder: the machine that filled it.
    """

    folder: Path
    keys: Path
    builder: MiniTree

    def copy(self, folder: Path) -> Shared:
        """One that may be damaged."""
        shutil.copytree(self.folder, folder)
        return Shared(folder, self.keys, self.builder)

    def statement(self, name: str) -> Path:
        """The file of a recipe's statement."""
        for path in self.folder.glob("statements/*.json"):
            if (
                f'"recipe": "{name}"'
                in Envelope.from_dict(json.loads(path.read_text())).payload.decode()
            ):
                return path
        raise AssertionError(name)

    def package(self, name: str) -> Path:
        (path,) = self.folder.glob(f"*/{name}-*.conda")
        return path

    def restate(self, name: str, key: str, change: Callable[[dict[str, object]], object]) -> None:
        """Another statement in the place of one, signed by a key."""
        path = self.statement(name)
        envelope = Envelope.from_dict(json.loads(path.read_text()))
        said = json.loads(envelope.payload)
        change(said)
        made = Envelope(json.dumps(said).encode(), envelope.payload_type, {})
        made.sign(load_signer(self.keys / key))
        path.write_text(json.dumps(made.to_dict()))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    top = tmp_path_factory.mktemp("shared")
    (top / "keys").mkdir()
    for name in ("builder", "thief"):
        new_key(top / "keys" / name)
    tree = make_tree(top / "builder")
    done = ok(tree.ddlce("build"))
    made = Shared(top / "cache", top / "keys", tree)
    done = ok(tree.ddlce("cache", "push", str(made.folder), "--sign", str(made.keys / "builder")))
    assert f"cache: 3 of 3 recipes are new in {made.folder}" in done.stdout
    return made


@pytest.fixture
def other(tmp_path: Path) -> MiniTree:
    """Another machine, with the same tree."""
    return make_tree(tmp_path / "other" / "machine")


def build(
    shared: Shared, machine: MiniTree, *words: str, at: str = "", code: int = 0
) -> tuple[set[str], str]:
    """`ddlce build` with a settings file; what it built itself, and what it said."""
    settings = machine.folder / "settings.yaml"
    key = shared.keys / "builder.pub"
    settings.write_text(f"cache:\n  at: {at or shared.folder}\n  keys: [{key}]\n")
    done = machine.ddlce("build", "--json", *words, DDLCE_SETTINGS=str(settings))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    said = done.stdout + done.stderr
    built = json.loads(done.stdout[done.stdout.index("{") :])["built"] if not code else {}
    return {*built}, said


def test_all_is_taken_and_nothing_is_built(shared: Shared, other: MiniTree) -> None:
    with served(shared.folder) as url:
        built, said = build(shared, other, at=url)
    assert built == set()
    assert f"cache: 3 of 3 recipes from {url}" in said
    assert other.packages() == shared.builder.packages()
    assert not [path for path in (other.folder / "cache").rglob(".*.new")]
    plan = json.loads(other.ddlce("plan", "--json").stdout)
    assert {step["action"] for step in plan} == {"reuse"}
    # What changed since is built here, and says why, as after a build of one's own.
    script = other.repo / "recipes" / "app" / "build.sh"
    script.write_text(script.read_text() + "true\n")
    assert "file build.sh changed" in other.ddlce("plan", "--explain", "app").stdout


def test_a_cold_make_builds_nothing(tmp_path: Path) -> None:
    """With the user's own settings file, in an empty home: no build is begun, no source fetched."""
    first = make_tree(tmp_path / "first")
    suite_release(first, "2026.11")
    done = ok(first.ddlce("all", "toys", HOME=str(tmp_path / "first")))
    new_key(tmp_path / "builder")
    cache = tmp_path / "cache"
    done = ok(first.ddlce("cache", "push", str(cache), "--sign", str(tmp_path / "builder")))

    second, home = MiniTree(tmp_path / "second"), tmp_path / "home"
    shutil.copytree(
        first.repo,
        second.repo,
        ignore=shutil.ignore_patterns("linux-64", "noarch", "*data.json", ".*"),
    )
    (home / ".config" / "ddl-ce").mkdir(parents=True)
    (home / ".config" / "ddl-ce" / "settings.yaml").write_text(
        f"cache:\n  at: {cache}\n  keys: [{tmp_path / 'builder.pub'}]\n"
    )
    lock = (second.repo / "envs" / "locks" / "toys.linux-64.lock").read_bytes()
    done = ok(second.ddlce("all", "toys", HOME=str(home)))
    assert f"cache: 4 of 4 recipes from {cache.as_uri()}" in done.stdout
    assert "start  " not in done.stderr
    assert second.packages() == first.packages()
    assert not [*second.settings.logs.glob("*"), *second.settings.sources.glob("*")]
    assert (second.repo / "envs" / "locks" / "toys.linux-64.lock").read_bytes() == lock
    prefix = Layout(second.settings.root).current("toys")
    assert prefix
    assert sorted(path.name for path in prefix.glob("share/*")) == ["app", "lib", "suite"]


def test_the_option_comes_before_the_settings_file(shared: Shared, other: MiniTree) -> None:
    built, said = build(shared, other, "--cache", str(shared.folder), "base", at="/absent")
    assert built == set()
    assert "cache: 1 of 1 recipes" in said
    built, said = build(shared, other, "--cache", "none", "lib")
    assert built == {"lib"}
    assert "cache" not in said


FAULTS: dict[str, tuple[Callable[[Shared], object], str]] = {
    "a byte of the package": (
        lambda cache: flip(cache.package("lib")),
        "noarch/lib-1.0-{build}.conda is not the signed one",
    ),
    "a longer package": (
        lambda cache: append(cache.package("lib")),
        "noarch/lib-1.0-{build}.conda is not the signed one",
    ),
    "no package": (
        lambda cache: cache.package("lib").unlink(),
        "noarch/lib-1.0-{build}.conda is missing",
    ),
    "another package": (
        lambda cache: shutil.copyfile(cache.package("base"), cache.package("lib")),
        "noarch/lib-1.0-{build}.conda is not the signed one",
    ),
    "no signature": (
        lambda cache: edit(cache.statement("lib"), lambda said: said.update(signatures=[])),
        "it is not signed by a trusted key",
    ),
    "a thief's signature": (
        lambda cache: cache.restate("lib", "thief", lambda said: None),
        "it is not signed by a trusted key",
    ),
    "a byte of the statement": (
        lambda cache: edit(
            cache.statement("lib"), lambda said: said.update(payload="AAAA" + said["payload"][4:])
        ),
        "it is not signed by a trusted key",
    ),
    "no statement": (
        lambda cache: cache.statement("lib").write_text("<html>"),
        "its statement is damaged",
    ),
    "an endless statement": (
        lambda cache: cache.statement("lib").write_bytes(b" " * (3 << 20)),
        "its statement has no end",
    ),
    "a statement of another recipe": (
        lambda cache: shutil.copyfile(cache.statement("base"), cache.statement("lib")),
        "its statement is about base for linux-64 with the digest ",
    ),
    "a signed statement of other packages": (
        lambda cache: cache.restate("lib", "builder", lambda said: said.update(subject=[])),
        "its statement is about other packages",
    ),
    "a signed text that is none of ours": (
        lambda cache: cache.restate("lib", "builder", lambda said: said.clear()),
        "its statement is no provenance of ours",
    ),
}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()  # it may be a link to the builder's own
    path.write_bytes(data)


def append(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data + b"x" * (1 << 20))


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_refused_by_name_and_built_here(
    shared: Shared, other: MiniTree, tmp_path: Path, fault: str
) -> None:
    cache = shared.copy(tmp_path / "cache")
    harm, sentence = FAULTS[fault]
    harm(cache)
    with served(cache.folder) as url:
        built, said = build(cache, other, "lib", at=url)
    assert built == {"lib"}
    (package,) = shared.folder.glob("noarch/lib-*.conda")
    short = package.stem.rpartition("-h")[2].removesuffix("_0")
    why = sentence.format(build=f"h{short}_0")
    assert f"cache: lib ({short}) is refused, and built here: {why}" in said
    assert other.packages()[package.name] == package.read_bytes()
    assert not [path for path in (other.folder / "cache").rglob(".*.new")]


def test_a_cache_that_cannot_be_reached(shared: Shared, other: MiniTree) -> None:
    built, said = build(shared, other, "base", at="http://127.0.0.1:9")
    assert built == {"base"}
    assert "cache: not used: http://127.0.0.1:9/statements/" in said


def test_nobody_is_trusted_without_a_settings_file(shared: Shared, other: MiniTree) -> None:
    done = other.ddlce("build", "--cache", str(shared.folder))
    assert done.returncode == 2
    assert "--cache: no settings file says whose packages are trusted" in done.stderr
    assert other.packages() == {}
    settings = other.folder / "settings.yaml"
    for text, said in {
        "cache:\n  at: here\n  keys: [/x]\n": "cache.at: String should match pattern",
        "cache:\n  at: /x\n  keys: []\n": "cache.keys: List should have at least 1 item",
        "cache:\n  at: /x\n  keys: [/absent.pub]\n": "/absent.pub: no public key",
    }.items():
        settings.write_text(text)
        done = other.ddlce("build", DDLCE_SETTINGS=str(settings))
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    key = other.folder / "open.pub"
    shutil.copyfile(shared.keys / "builder.pub", key)
    key.chmod(0o666)
    settings.write_text(f"cache:\n  at: {shared.folder}\n  keys: [{key}]\n")
    done = other.ddlce("build", DDLCE_SETTINGS=str(settings))
    assert done.returncode == 3
    assert f"the trusted key {key} is not used, since everybody may write {key}" in done.stderr


def test_a_cache_is_filled_once(shared: Shared, tmp_path: Path) -> None:
    again = ("cache", "push", str(shared.folder), "--sign")
    done = shared.builder.ddlce(*again, str(shared.keys / "builder"))
    assert f"cache: 0 of 3 recipes are new in {shared.folder}" in done.stdout
    statement = Envelope.from_dict(json.loads(shared.statement("lib").read_text()))
    said = json.loads(statement.payload)
    inputs = said["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert {"depends on base", "file build.sh"} <= {each["name"] for each in inputs}
    # By a new key, all of it is stated anew.
    cache = shared.copy(tmp_path / "cache")
    done = shared.builder.ddlce(*again[:2], str(cache.folder), "--sign", str(shared.keys / "thief"))
    assert "cache: 3 of 3 recipes are new" in done.stdout
