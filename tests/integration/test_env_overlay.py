"""`ddlce env overlay`: a user's Python packages on top of a release."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddlce.trees import remove_tree
from support.minienv import Site, everything, hello_wheel
from support.modulesystems import read_snap, require, run_shell, snap
from support.overlays import pip, run_bash, wheel
from support.run import ok, run

SITE_PACKAGES = "lib/python3.11/site-packages"
WHERE = "import sys, minimod; print(sys.prefix, minimod.__file__)"


@pytest.fixture(scope="module")
def made(installed: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A user with the overlay `mine`; other tests look at it, so do not change it."""
    user = Site(tmp_path_factory.mktemp("overlaid"), installed.channel, shared=installed)
    user.ok("env", "overlay", "mine")
    return user


@pytest.fixture
def moved(tmp_path: Path, user: Site) -> Iterator[Path]:
    """A folder for copies of the release, which are read-only."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    yield folder
    remove_tree(folder)


def test_it_sees_the_release_and_pip_installs_into_it(made: Site, tmp_path: Path) -> None:
    prefix = made.folder / "with hello"  # pip splits paths in its configuration at blanks
    made.ok("env", "overlay", prefix)
    seen = made.python(prefix, WHERE)
    assert seen == f"{prefix} {made.current}/{SITE_PACKAGES}/minimod/__init__.py"
    before = {path: path.lstat().st_mtime_ns for path in everything(made.current)}
    ok(pip(prefix, hello_wheel(tmp_path)))
    assert made.python(prefix, "import hello; print(hello.__file__)") == (
        f"{prefix}/{SITE_PACKAGES}/hello.py"
    )
    assert {path: path.lstat().st_mtime_ns for path in everything(made.current)} == before
    assert "1 packages" in made.ok("env", "check", prefix)


def test_programs_of_the_release_see_the_overlay(user: Site, tmp_path: Path) -> None:
    """The release's miniarch names the release's Python in its first line."""
    user.ok("env", "overlay", "mine")
    prefix = user.clones / "mine"
    # Whatever the release has: the overlay's own module of that name is found first.
    (prefix / SITE_PACKAGES / "miniarch.py").write_text("VALUE = 'the overlay'\n")
    done = run([prefix / "bin" / "miniarch"], env={})
    assert done.stdout == "the overlay\n", done.stderr


def test_pip_names_the_conflict(made: Site, tmp_path: Path) -> None:
    prefix = made.clones / "mine"
    lines = (prefix / "constraints.txt").read_text().splitlines()
    records = (json.loads(p.read_text()) for p in made.current.glob("conda-meta/*.json"))
    assert {line.partition("==")[0] for line in lines[1:]} >= {
        record["name"].replace("_", "-") for record in records if record["name"] != "pip"
    }
    newer = wheel(tmp_path, "minimod", "99.0", {"minimod.py": ""})
    done = pip(prefix, newer)
    assert done.returncode == 1
    assert "The user requested (constraint) minimod==" in done.stdout + done.stderr
    needs = wheel(tmp_path, "wants", "1.0", {"wants.py": ""}, "minimod>=99")
    done = pip(prefix, "--find-links", tmp_path, needs)
    assert "wants 1.0 depends on minimod>=99" in done.stdout + done.stderr
    assert made.ok("env", "check", "mine").endswith(": ok\n")


def test_packages_in_the_home_do_not_shadow_the_release(made: Site) -> None:
    """Without activation too: ranks on other hosts, and kernels, have none."""
    theirs = made.folder / "home" / ".local" / SITE_PACKAGES
    theirs.mkdir(parents=True)
    (theirs / "minimod.py").write_text("raise SystemExit('the wrong one')\n")
    done = run(
        [made.clones / "mine" / "bin" / "python", "-c", WHERE],
        env={"HOME": str(made.folder / "home")},
    )
    assert done.stdout.endswith(f" {made.current}/{SITE_PACKAGES}/minimod/__init__.py\n")


def test_modes_do_not_depend_on_the_umask(user: Site) -> None:
    before = os.umask(0)
    try:
        user.ok("env", "overlay", "mine")
    finally:
        os.umask(before)
    for path in everything(user.clones / "mine"):
        if not path.is_symlink():
            assert not stat.S_IMODE(path.stat().st_mode) & 0o022, path


def test_it_is_listed_and_removed(user: Site) -> None:
    user.ok("env", "overlay", "mine")
    rows = json.loads(user.ok("env", "list", "--json"))
    assert [row["prefix"] for row in rows if row["kind"] == "overlay"] == [f"{user.clones}/mine"]
    assert user.ok("env", "remove", "mine") == f"removed {user.clones}/mine\n"
    assert not (user.clones / "mine").exists()
    assert user.current.is_dir()


@pytest.mark.parametrize("start", ["mine/bin/python", "python"])
def test_it_is_not_removed_under_a_program(made: Site, start: str) -> None:
    made.ok("env", "overlay", "busy")
    prefix = made.clones / "busy"
    # As after `. bin/activate`: where PATH finds it, no path tells of the overlay.
    path = {"PATH": f"{prefix}/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(prefix)}
    command = [start if start == "python" else str(prefix / "bin/python")]
    job = subprocess.Popen(
        [*command, "-c", "print(flush=True); input()"],
        env=path if start == "python" else {},
        stdin=-1,
        stdout=-1,
    )
    assert job.stdout
    job.stdout.readline()
    said = made.fails(2, "env", "remove", "busy")
    assert f"{prefix} is in use: process {job.pid} (python" in said
    assert (prefix / "ddl-ce.overlay").is_file()
    job.communicate(b"\n")
    made.ok("env", "remove", "busy")


def test_what_is_there_already_stays(user: Site) -> None:
    (user.clones / "mine").mkdir(parents=True)
    (user.clones / "mine" / "thesis.tex").write_text("all of it")
    said = user.fails(2, "env", "overlay", "mine")
    assert said.startswith(f"error: {user.clones}/mine exists already\n")
    assert [path.name for path in everything(user.clones)] == ["mine", "thesis.tex"]


def test_an_unknown_release(user: Site) -> None:
    said = user.fails(2, "env", "overlay", "mine", "--release", "nightly")
    assert said.startswith("error: there is no environment nightly under ")
    assert not user.clones.exists()


def test_a_name_that_is_none(user: Site) -> None:
    said = user.fails(2, "env", "overlay", "my overlay")
    assert said.startswith("error: 'my overlay' is not a name for an environment\n")


def test_inside_of_the_release(user: Site, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(user.current / "share")
    for place in (user.current / "mine", tmp_path / "link" / "mine"):
        said = user.fails(2, "env", "overlay", place)
        inside = place.parent.resolve() / "mine"
        assert said.startswith(f"error: {inside} is inside the release {user.current}, which is ")
        assert not place.exists()


def test_a_clone_is_no_release(user: Site) -> None:
    user.ok("env", "clone", "copy")
    said = user.fails(2, "env", "overlay", "mine", "--release", "copy")
    assert said.startswith(f"error: {user.clones}/copy is a clone: an overlay is made on a release")


def test_a_release_that_was_moved(user: Site, moved: Path) -> None:
    shutil.copytree(user.current, moved / "release", symlinks=True)
    said = user.fails(2, "env", "overlay", "mine", "--release", moved / "release")
    assert said.startswith(f"error: the release {moved}/release was moved: its files name ")
    assert not user.clones.exists()


def copied_release(user: Site, folder: Path) -> Path:
    """A copy of the release that takes itself for one, and whose programs can be changed."""
    release = folder / "envs" / "mini" / user.current.name
    shutil.copytree(user.current, release, symlinks=True)
    origin = release / "conda-meta" / "ddl-ce.origin"
    text = json.loads(origin.read_text()) | {"pkgs": str(folder / "pkgs")}
    for changed in (release, release / "bin", origin.parent):
        changed.chmod(0o755)
    origin.unlink()
    origin.write_text(json.dumps(text))
    return release


def test_where_no_links_can_be_made(user: Site, moved: Path) -> None:
    """venv itself copies Python there, and the copy would not find the release's libraries."""
    release = copied_release(user, moved)
    python = release / "bin" / "python"
    real = python.resolve()
    python.unlink()
    python.write_text(f'#!/bin/bash\nexec {real} "${{@/--symlinks/--copies}}"\n')
    python.chmod(0o755)
    said = user.fails(3, "env", "overlay", "mine", "--release", release)
    assert said.startswith(f"error: {user.clones} takes no symbolic links (python, python3")
    assert everything(user.clones) == []


def test_a_release_whose_python_does_not_start(user: Site, moved: Path) -> None:
    """Its records are whole, so the message is about the program."""
    release = copied_release(user, moved)
    (release / "bin" / "python").unlink()
    assert "has no bin/python" in user.fails(2, "env", "overlay", "mine", "--release", release)
    (release / "bin" / "python").write_text("#!/bin/sh\necho no venv today >&2; exit 3\n")
    (release / "bin" / "python").chmod(0o755)
    said = user.fails(1, "env", "overlay", "mine", "--release", release)
    assert said.startswith(f"error: {release}/bin/python -m venv failed: no venv today\n")
    (release / "bin" / "python").chmod(0o644)
    said = user.fails(3, "env", "overlay", "mine", "--release", release)
    assert said.startswith(f"error: cannot run {release}/bin/python: Permission denied\n")
    assert everything(user.clones) == []


# --- activation


def by_module(site: Site, folder: Path, env: dict[str, str]) -> dict[str, str]:
    """What a load of the release's module adds and changes; PATH is the shell's own."""
    written = json.loads(site.ok("module", "--out", folder / "modules", "--json", "mini"))
    system, shell = require("lmod", "bash")
    before, after = folder / "unloaded", folder / "loaded"
    steps = [snap(before), "module load mini", snap(after)]
    ok(run_shell(system, shell, Path(written["use"][system.writer]), steps, env))
    was = read_snap(before)
    own = ("__", "LMOD", "MODULE", "PATH")
    return {
        name: value
        for name, value in read_snap(after).items()
        if value != was.get(name) and not name.startswith(own)
    }


@pytest.mark.parametrize("shell", ["bash", "zsh", "dash"])
def test_activation_does_what_the_module_does(made: Site, tmp_path: Path, shell: str) -> None:
    env = {"MANPATH": "/a:/b", "CONDA_PKGS_DIRS": "", "HOME": str(tmp_path / "home")}
    wanted = by_module(made, tmp_path, env)
    assert {"CONDA_PREFIX", "CONDA_SHLVL", "MANPATH", "MINI_GREETING", "CONDARC"} <= wanted.keys()
    prefix = made.clones / "mine"
    before, on, after = (tmp_path / name for name in ("before", "on", "after"))
    script = (
        f"{snap(before)}; . '{prefix}/bin/activate'; {snap(on)}; command -v python\n"
        f"PATH=/added:$PATH; deactivate; {snap(after)}"
    )
    done = run_bash(script, shell, **env)
    assert (done.stdout, done.stderr) == (f"{prefix}/bin/python\n", "")
    was, active, left = (read_snap(path) for path in (before, on, after))
    assert active.pop("PATH") == f"{prefix}/bin:{made.current}/bin:/usr/bin:/bin"
    assert active.pop("VIRTUAL_ENV") == str(prefix)
    assert active.pop("VIRTUAL_ENV_PROMPT") == "(mine) "
    assert {n: v for n, v in active.items() if v != was.get(n)} == wanted
    assert left.pop("PATH") == "/added:/usr/bin:/bin"
    del was["PATH"]
    assert left == was


@pytest.mark.parametrize("system", ["lmod", "environment-modules"])
def test_on_top_of_the_module(made: Site, tmp_path: Path, system: str) -> None:
    written = json.loads(made.ok("module", "--out", tmp_path / "m", "--json", "mini"))
    found, shell = require(system, "bash")
    prefix = made.clones / "mine"
    names = ("before", "loaded", "on", "off", "after")
    before, loaded, on, off, after = (tmp_path / name for name in names)
    activate = f". '{prefix}/bin/activate'"
    steps = [
        *(snap(before), "module load mini", snap(loaded), activate, snap(on), "command -v python"),
        *("deactivate", snap(off), "module unload mini", snap(after)),
        *("module load mini", activate, "module unload mini", "deactivate", snap(tmp_path / "odd")),
    ]
    done = run_shell(found, shell, Path(written["use"][found.writer]), steps, {})
    assert done.stdout == f"{prefix}/bin/python\n", done.stderr
    with_module, active = read_snap(loaded), read_snap(on)
    assert active.pop("PATH") == f"{prefix}/bin:{with_module['PATH']}"
    assert active.pop("VIRTUAL_ENV") == str(prefix)
    del active["VIRTUAL_ENV_PROMPT"]
    assert active == {n: v for n, v in with_module.items() if n != "PATH"}
    assert read_snap(off) == with_module
    assert read_snap(after) == read_snap(before)
    assert read_snap(tmp_path / "odd") == read_snap(before)


def test_activated_twice(made: Site, tmp_path: Path) -> None:
    prefix = made.clones / "mine"
    script = (
        f". '{prefix}/bin/activate'; . '{prefix}/bin/activate'; echo $PATH; deactivate; echo $PATH"
    )
    done = run_bash(script)
    assert done.stdout == f"{prefix}/bin:{made.current}/bin:/usr/bin:/bin\n/usr/bin:/bin\n"


def test_programs_named_deactivate_are_not_run(made: Site, tmp_path: Path) -> None:
    """As pyenv-virtualenv has one: a script inherits VIRTUAL_ENV, and no function."""
    program = tmp_path / "deactivate"
    program.write_text("#!/bin/sh\necho the wrong one\n")
    program.chmod(0o755)
    activate = f". '{made.clones / 'mine'}/bin/activate'"
    done = run_bash(f"PATH={tmp_path}:$PATH; VIRTUAL_ENV=/other; {activate}; echo $VIRTUAL_ENV")
    assert (done.stdout, done.stderr) == (f"{made.clones / 'mine'}\n", "")


def test_a_path_of_odd_characters(made: Site) -> None:
    prefix = made.folder / 'it\'s $HOME `id` @BIN@ "x"'
    made.ok("env", "overlay", prefix)
    steps = [
        f". {shlex.quote(str(prefix))}/bin/activate",
        f"python -c '{WHERE}'",
        'echo "${PS1@P}"',  # as bash shows it: commands in a prompt are run
        *("deactivate", "echo $PATH"),
    ]
    done = run_bash("; ".join(steps))
    module = f"{made.current}/{SITE_PACKAGES}/minimod/__init__.py"
    prompt = "(it_s _HOME _id_ _BIN_ _x_) "
    assert (done.stdout, done.stderr) == (f"{prefix} {module}\n{prompt}\n/usr/bin:/bin\n", "")


def test_not_beside_another_environment(made: Site) -> None:
    script = f". '{made.clones}/mine/bin/activate'; echo $? ${{VIRTUAL_ENV-none}} $PATH"
    done = run_bash(script, CONDA_PREFIX="/opt/miniforge")
    assert done.stdout == "1 none /usr/bin:/bin\n"
    assert done.stderr == (
        f"error: this overlay is made on {made.current}, and the environment /opt/miniforge is "
        "active\nhint:  leave that one first, with: conda deactivate (or: module unload NAME)\n"
    )
