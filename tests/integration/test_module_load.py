"""Loading and unloading with real Lmod and Environment Modules, in real shells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlce.env.layout import Layout
from ddlce.modulefile.install import Written, write_modulefiles
from support.moduleprefix import TRICKY, make_tricky_prefix
from support.modulesystems import SHELLS, Shell, System, read_snap, require, run_shell, snap

SYSTEMS = ("lmod", "environment-modules")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

#: Variables that the module sets, with values that a user may have in them before.
OWN = {
    "CONDA_DEFAULT_ENV": "left:over",
    "CONDARC": "/home/me/my:condarc",
    "PYTHONNOUSERSITE": "0",
    "CONDA_ENVS_PATH": "/scratch/me/envs",
    "CONDA_PKGS_DIRS": "/scratch/me/pkgs,/other",
    "PKG_CONFIG_PATH": "/opt/a:/opt/a:/opt/b",
    "XML_CATALOG_FILES": "file:///a file:///b",
    "GDAL_DATA": "/mine",
    "DDLT_DEFAULT": "mine",
}

ODD = 'user\'s $x [y] "z" \\ {'

PRESETS: dict[str, dict[str, str]] = {
    "nothing": {},
    "all-set": {**OWN, **dict.fromkeys(TRICKY, ODD), "MANPATH": "/m:/n"},
    "all-empty": {**dict.fromkeys([*OWN, *TRICKY], ""), "MANPATH": ""},
    "path-duplicates": {"PATH": f"/a:{SYSTEM_PATH}:/a:/b:/usr/bin:", "MANPATH": "/m:/m::/n:"},
    "same-values": {"PYTHONNOUSERSITE": "1", "CONDA_DEFAULT_ENV": "ddl-ce", "DDLT_DEFAULT": "ours"},
}


#: Values that a module system cannot hand to a shell, not even with its own setenv.
GAPS = {
    ("lmod", "tcsh"): {"DDLT_DOLLAR", "DDLT_BRACES", "DDLT_BANG"},
    ("environment-modules", "tcsh"): {"DDLT_BRACKETS"},
    ("environment-modules", "fish"): {"DDLT_BRACKETS", "DDLT_LUA"},
}


@dataclass(frozen=True)
class Machine:
    """A module system in a shell, with the modulefiles of releases 1.0.0 and 2.0.0."""

    system: System
    shell: Shell
    values: dict[str, str]
    written: Written

    @property
    def prefix(self) -> Path:
        """The prefix of 1.0.0."""
        return self.written.prefix

    def run(self, out: Path, commands: list[str], env: dict[str, str] | None = None) -> str:
        """Run commands; `{a}` writes the environment to the file a. Returns what was said."""
        tree = self.written.trees[self.system.writer]
        lines = [snap(out / c[1:-1]) if c.startswith("{") else c for c in commands]
        done = run_shell(self.system, self.shell, tree, lines, env or {})
        return done.stdout + done.stderr


@pytest.fixture(scope="module", params=[f"{m}-{shell}" for m in SYSTEMS for shell in SHELLS])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    name, _, shell = request.param.rpartition("-")
    found = require(name, shell)
    values = {n: v for n, v in TRICKY.items() if n not in GAPS.get((name, shell), ())}
    root = tmp_path_factory.mktemp("module root")  # with a space, as users' paths have
    layout = Layout(root)
    newer = write_modulefiles(make_tricky_prefix(root, "2.0.0", values), layout)
    older = write_modulefiles(make_tricky_prefix(root, "1.0.0", values), layout)
    assert newer.trees == older.trees
    return Machine(*found, values, older)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    "steps",
    [
        ["module load ddl-ce/1.0.0", "{loaded}", "module unload ddl-ce/1.0.0"],
        [
            "module load ddl-ce/1.0.0",
            "module load ddl-ce/1.0.0",
            "{loaded}",
            "module unload ddl-ce",
        ],
        ["module load ddl-ce/2.0.0", "module swap ddl-ce/2.0.0 ddl-ce/1.0.0", "{loaded}"]
        + ["module unload ddl-ce"],
        ["module load ddl-ce/1.0.0", "{loaded}", "module purge", "module load ddl-ce/1.0.0"]
        + ["module purge"],
    ],
    ids=["unload", "load-again", "swap", "purge"],
)
def test_unload_restores_exactly(
    machine: Machine, tmp_path: Path, steps: list[str], preset: str
) -> None:
    presets = PRESETS[preset]
    if machine.shell.name == "tcsh":
        presets = {name: value.replace(ODD, "x $y") for name, value in presets.items()}
    said = machine.run(tmp_path, ["{before}", *steps, "{after}"], presets)
    before, loaded, after = (read_snap(tmp_path / n) for n in ("before", "loaded", "after"))
    prefix = machine.prefix
    assert loaded["CONDA_PREFIX"] == str(prefix), said
    assert loaded["PATH"] == f"{prefix}/libexec:{prefix}/bin:{before['PATH']}"
    assert loaded["MANPATH"].startswith(f"{prefix}/share/man:")
    assert loaded["DDLT_RELEASE"] == "1.0.0"
    assert {name: loaded[name] for name in machine.values} == machine.values
    assert loaded["DDLT_DEFAULT"] == before.get("DDLT_DEFAULT", "ours")
    assert not {"CONDA_SHLVL", "LD_LIBRARY_PATH"} & set(loaded)
    assert after == before, said
