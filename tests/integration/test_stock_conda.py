"""Stock conda beside our releases: names, clones, caches, its doctor and its activation."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlce.env import clone as clone_module
from ddlce.env.layout import Layout
from ddlce.env.relink import Unusual
from ddlce.env.verify import verify
from ddlce.modulefile.install import Written, write_modulefiles
from support.minienv import (
    NOBODY,
    Site,
    can_be_nobody,
    everything,
    hello_wheel,
    packages_alone,
    site_of_channel,
)
from support.modulesystems import Shell, System, read_snap, require, run_shell, snap
from support.run import ok, run
from support.stockconda import StockConda, conda_environ, find_conda

SYSTEMS = ["lmod", "environment-modules"]


@pytest.fixture(scope="module")
def conda() -> StockConda:
    return find_conda()


@pytest.fixture(scope="module")
def written(installed: Site, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The modulefiles of the release `mini/2026.11`."""
    into = tmp_path_factory.mktemp("modules") / "tree"
    return write_modulefiles(installed.current, Layout(installed.root), into)


@dataclass(frozen=True)
class Session:
    """A bash with a module system and conda's function.

    Attributes:
        home: the user's.
    """

    system: System
    shell: Shell
    tree: Path
    conda: StockConda
    home: Path

    def run(self, *lines: str, check: bool = True, **variables: str) -> str:
        """Run lines in a new shell; returns its standard output."""
        env = conda_environ(self.home, **variables)
        prelude = [self.conda.function, "set -e"] if check else [self.conda.function]
        done = run_shell(self.system, self.shell, self.tree, [*prelude, *lines], env)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(params=SYSTEMS)
def session(
    request: pytest.FixtureRequest, tmp_path: Path, written: Written, conda: StockConda
) -> Session:
    system, shell = require(request.param, "bash")
    home = tmp_path / "home"
    home.mkdir()
    return Session(system, shell, written.trees[system.writer], conda, home)


def names(listing: str) -> dict[str, str]:
    """Name → prefix, as `conda env list` shows them."""
    rows = [line.replace("*", " ").split() for line in listing.splitlines() if line[:1] not in "#"]
    return {row[0]: row[1] for row in rows if len(row) == 2}


def test_the_release_has_names_once_its_module_is_loaded(session: Session, installed: Site) -> None:
    found = names(session.run("module load mini", "conda env list"))
    assert Path(found["mini-2026.11"]).resolve() == installed.current
    assert Path(found["mini"]).resolve() == installed.current
    where = "import sys; print(sys.prefix)"
    for name in ("mini-2026.11", "mini"):
        said = session.run("module load mini", f"conda run -n {name} python -c '{where}'")
        assert Path(said.strip()).resolve() == installed.current
    before = session.run("module load mini", "module unload mini", "conda env list")
    assert "mini" not in names(before)


def test_activating_by_name_shows_the_name(session: Session, installed: Site) -> None:
    lines = [f"export CONDARC={installed.current}/.condarc", "conda activate mini-2026.11"]
    said = session.run(*lines, "echo $CONDA_DEFAULT_ENV", "which mini-where").splitlines()
    assert said[-2] == "mini-2026.11"
    assert Path(said[-1]).resolve() == installed.current / "bin" / "mini-where"


def test_the_documented_clone_command(session: Session) -> None:
    session.run(
        "module load mini", "conda create --yes --quiet --name cloned_env --clone mini-2026.11"
    )
    prefix = session.home / ".local/share/ddl-ce-envs/cloned_env"
    done = run([prefix / "bin" / "mini-where"])
    assert done.stdout == f"{prefix}/share\none\n"
    found = names(session.run("module load mini", "conda env list"))
    assert found["cloned_env"] == str(prefix)


@pytest.mark.parametrize(
    ("session", "variable"),
    [
        ("lmod", "CONDA_ENVS_DIRS"),
        ("environment-modules", "CONDA_ENVS_PATH"),
        pytest.param("lmod", "CONDA_ENVS_PATH", marks=pytest.mark.slow),
        pytest.param("environment-modules", "CONDA_ENVS_DIRS", marks=pytest.mark.slow),
    ],
    indirect=["session"],
)
def test_the_users_own_folder_of_environments_comes_first(
    session: Session, variable: str, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    lines = ("module load mini", "conda create --yes --quiet -n c --clone mini", "conda env list")
    found = names(session.run(*lines, check=True, **{variable: str(mine)}))
    assert found["c"] == f"{mine}/c"
    assert "mini-2026.11" in found


def test_the_users_own_condarc_is_kept(session: Session, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (session.home / ".condarc").write_text(f"envs_dirs:\n  - {mine}\n")
    lines = ("module load mini", "conda config --show envs_dirs --json")
    folders = json.loads(session.run(*lines))["envs_dirs"]
    assert folders[0] == str(session.home / ".local/share/ddl-ce-envs")
    assert str(mine) in folders


@pytest.fixture
def stranger(public: Path, conda: StockConda, mini_channel: Path) -> Stranger:
    """A site with a release whose channel is gone, and a user who owns nothing of it."""
    site = site_of_channel(public, mini_channel)
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    (public / "channel").rename(public / "channel-gone")
    home = public / "stranger"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    return Stranger(site, conda.public(public / "conda"), home)


@dataclass(frozen=True)
class Stranger:
    """Another user than the one who installed the release."""

    site: Site
    conda: StockConda
    home: Path

    def run(self, *args: str) -> str:
        """Run `conda ARGS` as this user, as if the module was loaded."""
        env = conda_environ(self.home, CONDARC=f"{self.site.current}/.condarc")
        done = ok(self.conda.run(*args, env=env, user=NOBODY))
        return done.stdout


@pytest.mark.skipif(not can_be_nobody(), reason="needs root, to become another user")
def test_a_clone_by_conda_is_the_users_own(stranger: Stranger) -> None:
    stranger.run("create", "--yes", "--quiet", "-n", "c", "--clone", "mini")
    prefix = stranger.home / ".local/share/ddl-ce-envs/c"
    cache = stranger.home / ".cache/ddl-ce/conda-pkgs"
    assert [path for path in everything(cache) if path.suffix == ".conda"] == []
    assert not (prefix / "conda-meta" / "frozen").exists()
    assert not list(prefix.glob("lib/python3*/EXTERNALLY-MANAGED"))
    for path in [prefix, *everything(prefix)]:
        status = path.lstat()
        if not stat.S_ISLNK(status.st_mode):
            assert status.st_uid == NOBODY, path
            assert status.st_mode & 0o200, path
    said = stranger.site.python(prefix, "import minimod; minimod.main()")
    assert said == f"{prefix}/lib/python3.11/site-packages/minimod/__init__.py"
    assert_healthy(stranger.run("doctor", "--name", "c", "--verbose"))


def assert_healthy(report: str) -> None:
    """What `conda doctor` says of an environment where nothing is wrong."""
    assert "There are no packages with altered files." in report, report
    assert "There are no packages with missing files." in report, report


def test_the_doctor_finds_nothing_in_a_release(conda: StockConda, installed: Site) -> None:
    env = conda_environ(installed.folder / "nobody-home")
    done = conda.run("doctor", "--prefix", installed.current, "--verbose", env=env)
    assert_healthy(done.stdout)


def test_the_doctor_finds_nothing_in_our_clones(
    conda: StockConda, user: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.ok("env", "clone", "quick")
    monkeypatch.setattr(clone_module, "plan_links", refuse)
    monkeypatch.setenv("CONDA_ENVS_DIRS", str(user.clones))
    clone_module.clone(user.settings, "thorough", user.current)
    user.ok("env", "install", "thorough", "mini-more")
    for name in ("quick", "thorough"):
        prefix = user.clones / name
        done = conda.run("doctor", "-p", prefix, "-v", env=conda_environ(user.folder / "home"))
        assert_healthy(done.stdout)
        assert not list(prefix.glob("lib/python3*/EXTERNALLY-MANAGED"))
        assert verify(prefix).ok


def refuse(*_arguments: object) -> None:
    raise Unusual("as if rattler must do it")


@pytest.mark.skipif(not can_be_nobody(), reason="needs root, to become another user")
def test_pip_installs_into_a_clone_by_conda(stranger: Stranger, tmp_path: Path) -> None:
    stranger.run("create", "--yes", "--quiet", "-n", "c", "--clone", "mini-2026.11")
    prefix = stranger.home / ".local/share/ddl-ce-envs/c"
    pip = packages_alone(tmp_path / "pip", "pip")
    install = ("-m", "pip", "install", "--no-index", "--no-deps", hello_wheel(tmp_path))
    done = run(
        [prefix / "bin" / "python", *install], env=conda_environ(stranger.home, PYTHONPATH=str(pip))
    )
    assert done.returncode == 0, done.stderr
    assert stranger.site.python(prefix, "import hello; print(hello.GREETING)") == "hi"


#: conda itself leaves these behind: its prompt, which stands in the shell's own variable too,
#: and where it is.
CONDAS_OWN = {"CONDA_PROMPT_MODIFIER", "CONDA_EXE", "CONDA_PYTHON_EXE", "_CE_CONDA", "_CE_M"}
ACTIVE = ("PATH", "CONDA_PREFIX", "CONDA_SHLVL", "MINI_GREETING", "CONDARC")


def test_deactivate_comes_back_to_the_release(session: Session, tmp_path: Path) -> None:
    files = {n: tmp_path / n for n in ("before", "loaded", "inside", "back", "after")}
    session.run(
        *("module load mini", "conda create --yes --quiet -n c --clone mini", "module purge"),
        *(snap(files["before"]), "module load mini", snap(files["loaded"])),
        *("conda activate c", snap(files["inside"]), "conda deactivate", snap(files["back"])),
        *("module unload mini", snap(files["after"])),
    )
    before, loaded, inside, back, after = map(read_snap, files.values())
    assert inside["CONDA_PREFIX"] == str(session.home / ".local/share/ddl-ce-envs/c")
    assert loaded["CONDA_PREFIX"] not in inside["PATH"]
    assert {name: back[name] for name in ACTIVE} == {name: loaded[name] for name in ACTIVE}
    assert {n: v for n, v in after.items() if n not in CONDAS_OWN} == before


def test_unload_leaves_what_conda_has_activated_since(session: Session, tmp_path: Path) -> None:
    files = {n: tmp_path / n for n in ("before", "inside", "after")}
    session.run(
        *("module load mini", "conda create --yes --quiet -n c --clone mini", "module purge"),
        *(snap(files["before"]), "module load mini", "conda activate c", "module unload mini"),
        *(snap(files["inside"]), "conda deactivate", snap(files["after"])),
    )
    before, inside, after = map(read_snap, files.values())
    assert inside["CONDA_PREFIX"] == str(session.home / ".local/share/ddl-ce-envs/c")
    assert inside["PATH"] == f"{inside['CONDA_PREFIX']}/bin:{before['PATH']}"
    assert inside["CONDA_SHLVL"] == "1"
    assert not [name for name in inside if name.startswith(("CONDA_PREFIX_", "CONDA_STACKED_"))]
    assert after.pop("CONDA_SHLVL") == "0"
    assert {n: v for n, v in after.items() if n not in CONDAS_OWN} == before


def test_deactivate_leaves_the_release(session: Session, tmp_path: Path) -> None:
    """conda takes the module's environment for one that it has activated itself."""
    files = {n: tmp_path / n for n in ("before", "without", "after")}
    session.run(
        *(snap(files["before"]), "module load mini", "conda deactivate", snap(files["without"])),
        *("module unload mini", snap(files["after"])),
    )
    before, without, after = map(read_snap, files.values())
    assert without["PATH"] == before["PATH"]
    assert "CONDA_PREFIX" not in without
    assert after.pop("CONDA_SHLVL") == "0"
    assert {n: v for n, v in after.items() if n not in CONDAS_OWN} == before
