"""Environments at any path: each command does all of its work, or refuses it and leaves nothing.

The paths are drawn by a seed: links on the way, dots, blanks, quotes, letters of every kind,
characters that end a path in PATH, and lengths up to what packages have space for.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlce.env.clone import clone
from ddlce.env.create import create
from ddlce.env.gc import collect
from ddlce.env.install import install_specs
from ddlce.env.layout import Layout, clone_target, find_env, user_lock
from ddlce.env.remove import remove
from ddlce.env.verify import verify
from ddlce.errors import InputError
from ddlce.lock import channel_address
from ddlce.model.envlock import EnvLock
from ddlce.overlay.create import make_overlay, remove_overlay
from ddlce.settings import load_settings
from ddlce.trees import remove_tree
from support.minichannel import PLACEHOLDER, Pkg
from support.minienv import Site, everything, toy_site
from support.run import run

PARTS = (
    *("plain", "a.b", ".hidden", "two words", " blank ", "it's", '"quoted"', "$HOME", "`id`"),
    *("back\\slash", "100%", "#1", "[a]", "*", "-rf", "~", "a=b", "x;y", "(z)", "grün", "日本語"),
    *("e\N{COMBINING ACUTE ACCENT}", "\N{GRINNING FACE}", "@x@", "{y}", "%40", "a&b", "!", "?"),
)
#: No environment can be below these: PATH and lists of caches are divided there.
REFUSED = ("a:b", "new\nline", "com,ma")
#: The bytes of a program in which a prefix has space for 255.
ROOM = 258
SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 60))]


@dataclass
class Draw:
    """Draws paths below a folder of its own."""

    random: random.Random
    folder: Path

    def path(self) -> Path:
        """A path as a user may write it; its folders are there, and it is not."""
        here = Path(self.folder / f"{self.random.randrange(10**6)}")
        here.mkdir(parents=True)
        for _ in range(self.random.randrange(3)):
            here = self.step(here)
        last = self.random.choice(PARTS if self.random.random() < 0.8 else REFUSED)
        room = self.random.choice((120, 200, 255)) - len(os.fsencode(here / last))
        if self.random.random() < 0.3 and room > 0:
            last += "x" * min(room, 255 - len(os.fsencode(last)))
        return here / last

    def step(self, here: Path) -> Path:
        """A folder below, or the same one by a longer way."""
        name = self.random.choice(PARTS if self.random.random() < 0.9 else REFUSED)
        (here / name).mkdir(exist_ok=True)
        how = self.random.randrange(4)
        if how == 0:
            return here / name / ".." / name
        if how == 1:
            link = here / "link"
            link.unlink(missing_ok=True)
            link.symlink_to(name)
            return link
        return here / name


def is_refused(path: Path) -> bool:
    """Whether no environment can be at a path."""
    real = os.path.realpath(path)
    return ":" in real or "\n" in real or len(os.fsencode(real)) > 255


def whole(prefix: Path, given: Path, *names: str) -> None:
    """All files of an environment are there, and name its one path, however it was given."""
    assert prefix == Path(os.path.realpath(given))
    report = verify(prefix)
    assert (report.modified, report.missing, report.problems) == ([], [], [])
    for name in names:
        assert (prefix / "etc" / name).read_text() == f"{prefix}\n"
        text = os.fsencode(f"{prefix}/x").ljust(ROOM, b"\0")
        assert (prefix / "etc" / f"{name}.bin").read_bytes() == text


def toy(name: str) -> Pkg:
    """A package with its prefix in a text and in a program."""
    data = f"{PLACEHOLDER}/x\0".encode()
    assert len(data) == ROOM
    return Pkg(name, files={f"etc/{name}": f"{PLACEHOLDER}\n", f"etc/{name}.bin": data})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = toy_site(tmp_path_factory.mktemp("site"), toy("toy"), toy("more"))
    yield site
    remove_tree(site.root)


@pytest.fixture
def draw(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Draw]:
    """Below `/tmp` itself, so that most of a path is drawn."""
    folder = Path(tempfile.mkdtemp(prefix="odd-"))
    folder.chmod(0o755)
    drawn = Draw(random.Random(request.param), folder)
    monkeypatch.setenv("DDLCE_CACHE", str(drawn.path()))
    monkeypatch.setenv("CONDA_ENVS_PATH", str(folder / "clones"))
    yield drawn
    remove_tree(folder)


@pytest.mark.parametrize("draw", SEEDS, indirect=True)
def test_a_release_its_clone_and_a_change(
    made: Site, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDLCE_REPO", str(made.repo))
    channel = draw.path()
    shutil.copytree(made.channel, channel)
    address, root, path = channel_address(channel), draw.path(), draw.path()
    settings, lock = load_settings(root), EnvLock.load(made.lock)
    prefix = Layout(settings.root).prefix("mini", lock.release, lock.digest)
    try:
        assert create(settings, lock, address).prefix == prefix
    except InputError:
        assert is_refused(prefix) or "," in str(prefix)
        assert everything(root) == []
        return
    assert not is_refused(prefix)
    assert "," not in str(prefix)
    whole(prefix, root / prefix.relative_to(settings.root), "toy")
    before = everything(path.parent)
    try:
        clone(settings, str(path), prefix)
    except InputError:
        assert is_refused(path)
        assert everything(path.parent) == before
        return
    assert not is_refused(path)
    found = find_env(settings, str(path))
    assert user_lock(settings, found) == user_lock(settings, clone_target(str(path)))
    whole(found, path, "toy")
    install_specs(settings, found, ["more"], channel=address)
    whole(found, path, "toy", "more")
    again = draw.path()
    if not is_refused(again):
        clone(settings, str(again), found)
        whole(find_env(settings, str(again)), again, "toy", "more")
    assert remove(settings, str(path)) == found
    assert everything(path.parent) == before
    collected = collect(settings, keep=1)
    assert (collected.releases, collected.packages, collected.leftovers) == ([], [], [])
    whole(prefix, prefix, "toy")


@pytest.mark.parametrize("draw", SEEDS[:6], indirect=True)
def test_an_overlay(installed: Site, draw: Draw) -> None:
    path = draw.path()
    before = everything(path.parent)
    try:
        prefix = make_overlay(installed.settings, str(path), installed.current).prefix
    except InputError:
        assert is_refused(path)
        assert everything(path.parent) == before
        return
    assert prefix == Path(os.path.realpath(path))
    code = "import sys; print(sys.prefix)"
    script = f". {shlex.quote(str(prefix / 'bin/activate'))} && python -c {shlex.quote(code)}"
    done = run(["bash", "-c", script], check=True)
    assert done.stdout == f"{prefix}\n"
    assert remove_overlay(installed.settings, str(path)) == prefix
    assert everything(path.parent) == before


def test_a_clone_right_below_a_folder_of_the_system(made: Site) -> None:
    path = Path(tempfile.mkdtemp(prefix="ddlce-test-"))
    path.rmdir()
    made.ok("env", "clone", path)
    assert made.ok("env", "remove", path) == f"removed {path}\n"
    assert not path.exists()


@pytest.mark.parametrize("name", ["mini", "mini-2026.11"])
@pytest.mark.parametrize("command", [["clone"], ["overlay", "--release", "mini"]])
def test_a_name_that_means_a_release(made: Site, name: str, command: list[str]) -> None:
    for given in (name, made.clones / name):
        said = made.fails(2, "env", command[0], given, *command[1:])
        assert said.startswith(f"error: {name} is the name of an environment under {made.root}\n")


def test_a_name_that_came_to_mean_a_release(made: Site) -> None:
    """The site has installed an environment with the name that a user's clone had."""
    made.ok("env", "clone", "mine")
    taken = (made.clones / "mine").rename(made.clones / "mini")
    said = made.fails(2, "env", "remove", "mini")
    assert f"mini is an environment under {made.root}, and there is {taken} too\n" in said
    assert made.ok("env", "remove", taken) == f"removed {taken}\n"
    assert made.current.is_dir()


@pytest.mark.parametrize("place", ["CONDA_ENVS_PATH", "DDLCE_ROOT", "DDLCE_CACHE"])
def test_a_home_of_nobody(made: Site, place: str) -> None:
    site = Site(made.folder, made.channel, extra={place: "~nouser/x"})
    for command in (["list"], ["clone", "x", "--from", "mini"], ["remove", "x"], ["gc"]):
        if command != ["gc"] or place != "CONDA_ENVS_PATH":
            said = site.fails(2, "env", *command)
            assert said.startswith(f"error: {place}: ~nouser/x: there is no user 'nouser'\n")
