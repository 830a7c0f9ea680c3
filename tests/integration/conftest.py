"""A real channel and a site with a release installed from it; a server of sources."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from ddlce.engine.variants import VARIANTS
from ddlce.env.layout import Layout
from ddlce.settings import Settings, load_settings
from ddlce.sources import fetch as fetch_module
from ddlce.trees import remove_tree
from support.cudasim import build_cudasim
from support.cudatorch import simulate_torch
from support.cudavariant import build_cuda_variant, nvidia_wheels
from support.minichannel import make_channel
from support.minienv import Site, site_of_channel
from support.sourceserver import Server

#: Files whose tests start ranks, or measure them: one worker has them, one after the other.
RANKS = {
    "test_companions",
    "test_external_mpi",
    "test_guide_built",
    "test_lab_ddl",
    "test_lab_network",
    "test_notebooks",
    "test_open_mpi",
    "test_parameter_server",
    "test_readme_built",
    "test_recipe_tests_built",
    "test_sanitizers",
    "test_smoke_built",
}


#: Files whose tests use one build of libddl for CUDA, which takes longer than they do.
CUDA = {"test_cuda_simulated", "test_cuda_variant"}

#: Recipes whose tests start no ranks, and are long: beside those that do.
ALONE = "[lms-"


def resource(nodeid: str) -> str:
    """The file of a test, or the name of the resource that it shares with those of other files."""
    file = nodeid.partition("::")[0]
    if Path(file).stem in CUDA:
        return "cuda"
    if Path(file).stem not in RANKS:
        return file
    return "lms" if ALONE in nodeid else "ranks"


class ByResource(LoadScopeScheduling):
    """Tests of one resource go to one worker; else those of one file do."""

    def _split_scope(self, nodeid: str) -> str:
        return resource(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Tell pytest-xdist which tests belong together. (Its own groups do not work in pytest 9.2.)"""
    config.option.loadscopereorder = False  # as ordered below
    return ByResource(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest begin first, so that no worker goes on alone at the end."""
    sizes = Counter(resource(item.nodeid) for item in items)

    def place(item: pytest.Item) -> tuple[int, int, str]:
        name = resource(item.nodeid)
        return ("ranks", "lms", name).index(name), -sizes[name], name

    items.sort(key=place)


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip finds packages here and nowhere else, through its ordinary configuration."""
    folder = tmp_path / "wheelhouse"
    folder.mkdir()
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nno-index = true\nfind-links = {folder}\n")
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    return folder


@pytest.fixture(scope="session")
def mini_channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mini channel; read it, do not change it."""
    return make_channel(tmp_path_factory.mktemp("mini") / "channel")


@pytest.fixture(scope="session")
def prefix() -> Path:
    """The environment that `make` built: the default release of ddl-ce."""
    current = Layout(load_settings().root).current("ddl-ce")
    assert current, "there is no built environment: run `make` first"
    return current


@pytest.fixture(scope="session")
def cuda_sim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The simulation of the CUDA that libddl's variant is compiled against, for LD_PRELOAD."""
    return build_cudasim([nvidia_wheels()], tmp_path_factory.mktemp("sim") / "build")


@pytest.fixture(scope="session")
def cuda_variant(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with libddl.so.1 for CUDA, beside its sources."""
    return build_cuda_variant(prefix, tmp_path_factory.mktemp("cuda") / "library")


@pytest.fixture(scope="session")
def simulated_torch(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Unmodified PyTorch on the simulated CUDA, built: the variables of a program."""
    return simulate_torch(prefix, tmp_path_factory.mktemp("torch"))


@pytest.fixture
def site(tmp_path: Path, mini_channel: Path) -> Iterator[Site]:
    """A site with a channel of its own and nothing installed."""
    yield site_of_channel(tmp_path, mini_channel)
    empty(tmp_path)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, mini_channel: Path) -> Iterator[Site]:
    """A site with a release; other tests look at it, so do not change it."""
    folder = tmp_path_factory.mktemp("installed")
    folder.chmod(0o755)
    site = Site(folder, str(mini_channel))
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    yield site
    empty(folder)


@pytest.fixture
def user(tmp_path: Path, installed: Site) -> Iterator[Site]:
    """A user of the installed release, with caches and clones of their own."""
    yield Site(tmp_path, installed.channel, shared=installed)
    empty(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with nothing on it yet."""
    with Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A tree with no sources and an empty cache; a failed download is tried again at once."""
    monkeypatch.setattr(fetch_module, "BACKOFF_S", (0.01, 0.01, 0.01))
    tree = tmp_path / "tree"
    (tree / "recipes").mkdir(parents=True)
    (tree / "recipes" / VARIANTS).write_text("python: [3.11.* *_cpython]\n")
    (tree / "channel").mkdir()
    (tree / "channel" / "channel.yaml").touch()
    return Settings(repo=tree, cache=tmp_path / "cache", root=tmp_path / "root")


def empty(folder: Path) -> None:
    """Remove what a site made: pytest would keep gigabytes, and cannot remove what is read-only."""
    for path in folder.iterdir():
        remove_tree(path) if path.is_dir() else path.unlink()
