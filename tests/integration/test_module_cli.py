"""`ddlce module`: what it writes, what it says, what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddlce.modulefile.content import CONFLICTS
from ddlce.trees import remove_tree
from support.minienv import Site
from support.moduleprefix import (
    add_package,
    add_script,
    make_prefix,
    make_tricky_prefix,
    set_current,
)
from support.modulesystems import read_snap, require, run_shell, snap
from support.run import ok, run

FILES = {
    "lua/ddl-ce/.modulerc.lua",
    "lua/ddl-ce/1.0.0.lua",
    "tcl/ddl-ce/.modulerc",
    "tcl/ddl-ce/1.0.0",
}


def ddlce(root: Path, *args: str | Path, code: int = 0) -> str:
    """Run `ddlce module ARGS`, which must exit with `code`; returns what it printed."""
    command = [sys.executable, "-m", "ddlce", "module", *map(str, args)]
    env = {**os.environ, "DDLCE_ROOT": str(root), "COLUMNS": "200"}
    env.pop("CONDA_ENVS_PATH", None)
    done = run(command, env=env)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code else done.stdout


def written(tree: Path) -> set[str]:
    """The files under a folder."""
    return {str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file()}


def default_of(root: Path) -> tuple[str, str]:
    """The default versions that the two module systems are told."""
    tree = root / "modulefiles"
    lua = (tree / "lua/ddl-ce/.modulerc.lua").read_text()
    tcl = (tree / "tcl/ddl-ce/.modulerc").read_text()
    found = [re.search(r'"ddl-ce/([^"]+)"', text) for text in (lua, tcl)]
    assert found[0]
    assert found[1]
    return found[0][1], found[1][1]


def test_writes_and_says_what_to_use(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path)
    set_current(prefix)
    tree = tmp_path / "modulefiles"
    assert ddlce(tmp_path) == (
        f"ddl-ce/1.0.0 for {prefix}\n"
        f"  Lmod: {tree}/lua/ddl-ce/1.0.0.lua\n"
        f"    module use {tree}/lua\n"
        f"  Environment Modules: {tree}/tcl/ddl-ce/1.0.0\n"
        f"    module use {tree}/tcl\n"
        "module load ddl-ce loads ddl-ce/1.0.0\n"
    )
    assert written(tree) == FILES


def test_json_into_and_name(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path)
    into = tmp_path / "elsewhere"
    out = json.loads(ddlce(tmp_path, prefix, "--out", into, "--name", "train", "--json"))
    assert out == {
        "name": "train",
        "version": "1.0.0",
        "default": "1.0.0",
        "prefix": str(prefix),
        "modulefiles": {
            "Lmod": f"{into}/lua/train/1.0.0.lua",
            "Environment Modules": f"{into}/tcl/train/1.0.0",
        },
        "use": {"Lmod": f"{into}/lua", "Environment Modules": f"{into}/tcl"},
        "removed": [],
    }
    assert written(into) - {".lock"} == {name.replace("ddl-ce", "train") for name in FILES}
    assert not (tmp_path / "modulefiles").exists()


def test_default_follows_the_current_release(tmp_path: Path) -> None:
    old, new = make_prefix(tmp_path, "1.0.0"), make_prefix(tmp_path, "1.10.0")
    set_current(new)
    ddlce(tmp_path)
    ddlce(tmp_path, old)
    assert default_of(tmp_path) == ("1.10.0", "1.10.0")
    set_current(old)  # a rollback
    ddlce(tmp_path)
    assert default_of(tmp_path) == ("1.0.0", "1.0.0")


def test_modulefiles_of_a_removed_release_go(tmp_path: Path) -> None:
    old, new = make_prefix(tmp_path, "1.0.0"), make_prefix(tmp_path, "1.1.0")
    for prefix in (old, new):
        ddlce(tmp_path, prefix)
    ddlce(tmp_path, old, "--name", "mine")
    shutil.rmtree(old)
    said = ddlce(tmp_path, new)
    assert said.count("its release is gone") == 2
    tree = tmp_path / "modulefiles"
    assert written(tree / "lua" / "ddl-ce") == {".modulerc.lua", "1.1.0.lua"}
    assert written(tree / "tcl" / "ddl-ce") == {".modulerc", "1.1.0"}
    assert "1.0.0" in written(tree / "tcl" / "mine")  # another name: not ours to tidy


def test_what_others_put_beside_modulefiles_stays(tmp_path: Path) -> None:
    prefix, gone = make_prefix(tmp_path, "1.0.0"), make_prefix(tmp_path, "0.9")
    ddlce(tmp_path, gone)
    for system, suffix, text in (("lua", ".lua", "-- a site's\n"), ("tcl", "", "#%Module\n")):
        folder = tmp_path / "modulefiles" / system / "ddl-ce"
        (folder / "README").write_text("notes")
        (folder / f"2020.1{suffix}").write_text(text)
        (folder / f"broken{suffix}").write_bytes(b"\xff\xfe")
        (folder / f"attic{suffix}").mkdir()
        # A copy that a site has changed, under a name of its own.
        shutil.copy(folder / f"0.9{suffix}", folder / f"0.9-site{suffix}")
        (folder / f"default{suffix}").symlink_to(f"0.9-site{suffix}")
    shutil.rmtree(gone)
    said = ddlce(tmp_path, prefix)
    assert said.count("its release is gone") == 2
    kept = {"README", "2020.1", "broken", "attic", "0.9-site", "default", "1.0.0", ".modulerc"}
    names = {path.name for path in (tmp_path / "modulefiles/tcl/ddl-ce").iterdir()}
    assert names == kept
    names = {path.name for path in (tmp_path / "modulefiles/lua/ddl-ce").iterdir()}
    assert names == {name if name == "README" else f"{name}.lua" for name in kept}


def test_writing_again_changes_nothing(tmp_path: Path) -> None:
    prefix = make_tricky_prefix(tmp_path)
    ddlce(tmp_path, prefix)
    tree = tmp_path / "modulefiles"
    before = {name: (tree / name).read_bytes() for name in written(tree)}
    ddlce(tmp_path, prefix)
    assert {name: (tree / name).read_bytes() for name in written(tree)} == before


def test_an_unknown_environment(tmp_path: Path) -> None:
    message = ddlce(tmp_path, "nope", code=2)
    assert message.startswith("error: there is no environment nope under")


def test_a_folder_that_is_no_environment(tmp_path: Path) -> None:
    assert str(tmp_path) in ddlce(tmp_path, f"{tmp_path}/", code=2)


@pytest.mark.parametrize("name", ["", "a/b", "../up", "a b", ".hidden", "x\ny"])
def test_a_name_that_no_module_can_have(tmp_path: Path, name: str) -> None:
    prefix = make_prefix(tmp_path)
    message = ddlce(tmp_path, prefix, "--name", name, code=2)
    assert "is not a name for a module" in message
    assert "hint:" in message
    assert not (tmp_path / "modulefiles").exists()


def test_activation_that_no_modulefile_can_do_writes_nothing(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path)
    script = add_script(prefix, "z.sh", "cd /")
    message = ddlce(tmp_path, prefix, code=2)
    assert f"error: {script} changes the working directory" in message
    assert "hint:" in message
    assert not (tmp_path / "modulefiles").exists()


def test_a_broken_package_record(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path)
    path = prefix / "conda-meta" / "bad-1-0.json"
    path.write_text("{")
    assert f"{path}: not a package record" in ddlce(tmp_path, prefix, code=2)


def test_a_target_that_cannot_be_written(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path)
    message = ddlce(tmp_path, prefix, "--out", "/proc/ddl-ce", code=3)
    assert "/proc/ddl-ce" in message


def test_a_file_in_the_way(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path)
    (tmp_path / "modulefiles").write_text("")
    message = ddlce(tmp_path, prefix, code=3)
    assert "modulefiles" in message


def test_lmod_finds_packages_by_their_python_name(tmp_path: Path) -> None:
    lmod, bash = require("lmod", "bash")
    prefix = make_prefix(tmp_path)
    ddlce(tmp_path, prefix)
    tree = tmp_path / "modulefiles" / "lua"
    done = run_shell(lmod, bash, tree, ["module --redirect spider torch/2.13.0"], {})
    assert "ddl-ce/1.0.0" in done.stdout
    done = run_shell(lmod, bash, tree, ["module --redirect keyword pytorch"], {})
    assert "ddl-ce/1.0.0" in done.stdout


@pytest.mark.parametrize("system", ["lmod", "environment-modules"])
def test_help_names_packages_and_commands(tmp_path: Path, system: str) -> None:
    found, bash = require(system, "bash")
    ddlce(tmp_path, make_prefix(tmp_path))
    tree = tmp_path / "modulefiles" / ("lua" if system == "lmod" else "tcl")
    done = run_shell(found, bash, tree, ["module help ddl-ce", "module whatis ddl-ce"], {})
    said = done.stdout + done.stderr
    for line in (
        "ddl-ce 1.0.0: Trains on many ranks",
        "  python   3.11.13",
        "  pytorch  2.13.0",
        "  ddlrun -H localhost:4 python train.py",
        "  ddlce env overlay NAME",
        "  ddlce env clone NAME",
    ):
        assert line in said.splitlines()
    assert "Packages: ddl-ce 1.0.0, python 3.11.13, pytorch 2.13.0, ddl 1.0.0" in said


def test_help_names_only_what_is_there(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path)
    (prefix / "bin" / "ddlrun").unlink()
    (prefix / "bin" / "ddlce").unlink()
    ddlce(tmp_path, prefix)
    for path in (tmp_path / "modulefiles").rglob("1.0.0*"):
        text = path.read_text()
        assert "ddlrun" not in text
        assert "ddlce env clone" not in text


@pytest.mark.parametrize("system", ["lmod", "environment-modules"])
def test_conflicts_with_other_pythons(tmp_path: Path, system: str) -> None:
    found, bash = require(system, "bash")
    ddlce(tmp_path, make_prefix(tmp_path))
    folder, name, text = {
        "lmod": ("lua", "1.lua", ""),
        "environment-modules": ("tcl", "1", "#%Module\n"),
    }[system]
    tree = tmp_path / "modulefiles" / folder
    for other in CONFLICTS:
        path = tree / other / name
        path.parent.mkdir()
        path.write_text(text)
    out = tmp_path / "snap"
    for other in ("anaconda3", "python"):
        steps = [f"module load {other}", "module load ddl-ce", snap(out)]
        done = run_shell(found, bash, tree, steps, {})
        assert "conflict" in (done.stdout + done.stderr), other
        assert "CONDA_PREFIX" not in read_snap(out)


@pytest.mark.parametrize("system", ["lmod", "environment-modules"])
def test_load_starts_no_more_programs_than_an_empty_module(tmp_path: Path, system: str) -> None:
    found, bash = require(system, "bash")
    if not shutil.which("strace"):
        pytest.skip("strace is not installed (apt-get install strace)")
    prefix = make_tricky_prefix(tmp_path)
    out = json.loads(ddlce(tmp_path, prefix, "--json"))
    tree = Path(out["use"][found.writer])
    modulefile = Path(out["modulefiles"][found.writer])
    empty = tree / "empty" / modulefile.name
    empty.parent.mkdir()
    empty.write_text("" if system == "lmod" else "#%Module\n")
    started = {}
    for name in ("ddl-ce", "empty"):
        trace, child = tmp_path / f"{name}.trace", tmp_path / f"{name}.sh"
        child.write_text(f". '{found.init / 'bash'}'\nmodule load {name}\n")
        strace = f"strace -f -qq -e trace=execve -o '{trace}' bash --norc '{child}'"
        ok(run_shell(found, bash, tree, [strace], {}))
        started[name] = re.findall(r'execve\("([^"]+)".* = 0', trace.read_text())
    assert started["ddl-ce"] == started["empty"]
    assert not [program for program in started["ddl-ce"] if "python" in program]


def test_the_tcl_file_refuses_lmod(tmp_path: Path) -> None:
    """Lmod's pushenv for Tcl loses the user's value, so the wrong tree must not half work."""
    lmod, bash = require("lmod", "bash")
    ddlce(tmp_path, make_prefix(tmp_path))
    out = tmp_path / "snap"
    steps = ["module load ddl-ce", snap(out)]
    done = run_shell(lmod, bash, tmp_path / "modulefiles" / "tcl", steps, {})
    assert "modulefiles/lua" in done.stderr
    assert "CONDA_PREFIX" not in read_snap(out)


def test_provide_needs_a_new_environment_modules(tmp_path: Path) -> None:
    prefix = make_prefix(tmp_path)
    add_package(
        prefix,
        "conda",
        "25.1",
        files=["lib/python3.11/site-packages/conda-25.1.dist-info/METADATA"],
    )
    ddlce(tmp_path, prefix)
    text = (tmp_path / "modulefiles/tcl/ddl-ce/1.0.0").read_text()
    found = re.search(
        r"\[versioncmp \$::ModuleToolVersion 5\.6\] >= 0\} \{\n +provide (.*)\n", text
    )
    assert found
    # Neither itself nor what it conflicts with.
    assert found[1] == '"ddl/1.0.0" "pytorch/2.13.0" "torch/2.13.0"'


@pytest.fixture
def real(tmp_path: Path, installed: Site) -> Iterator[Site]:
    """A root with an environment that `ddlce env create` has installed."""
    yield Site(tmp_path, installed.channel, shared=installed)
    remove_tree(installed.root / "modulefiles")


@pytest.mark.parametrize("system", ["lmod", "environment-modules"])
def test_a_really_installed_environment(real: Site, tmp_path: Path, system: str) -> None:
    found, bash = require(system, "bash")
    out = json.loads(real.ok("module", "mini", "--out", tmp_path / "modules", "--json"))
    tree = Path(out["use"][found.writer])
    names = ("before", "loaded", "after")
    before, loaded, after = (tmp_path / name for name in names)
    steps = [snap(before), "module load mini", snap(loaded), "module unload mini", snap(after)]
    done = run_shell(found, bash, tree, steps, {})
    assert read_snap(loaded)["CONDA_PREFIX"] == str(real.current), done.stderr
    assert read_snap(loaded)["CONDARC"] == str(real.current / ".condarc")
    assert read_snap(after) == read_snap(before)
