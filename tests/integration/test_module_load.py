"""Loading and unloading with real Lmod and Environment Modules, in real shells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlce.env.layout import ORIGIN, Layout
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
SOME_PRESETS = ("nothing", "all-set")


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


#: fish runs in `make test-full`; the other shells always.
PARAMS = [
    pytest.param(f"{m}-{shell}", marks=[pytest.mark.slow] if shell == "fish" else [])
    for m in SYSTEMS
    for shell in SHELLS
]


@pytest.fixture(scope="module", params=PARAMS)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    name, _, shell = request.param.rpartition("-")
    found = require(name, shell)
    values = {n: v for n, v in TRICKY.items() if n not in GAPS.get((name, shell), ())}
    # A path with a space, but Lmod's function for fish cannot `module use` one.
    spaced = (name, shell) != ("lmod", "fish")
    root = tmp_path_factory.mktemp("module root" if spaced else "root")
    layout = Layout(root)
    newer = write_modulefiles(make_tricky_prefix(root, "2.0.0", values), layout)
    older = write_modulefiles(make_tricky_prefix(root, "1.0.0", values), layout)
    assert newer.trees == older.trees
    return Machine(*found, values, older)


#: Ways to end with nothing loaded; the environment is written down after each.
SEQUENCES = {
    "unload": ["module unload ddl-ce/1.0.0"],
    "load-again": ["module load ddl-ce/1.0.0", "module load ddl-ce/1.0.0", "module unload ddl-ce"],
    "swap": [
        "module load ddl-ce/1.0.0",
        "module swap ddl-ce/1.0.0 ddl-ce/2.0.0",
        "module unload ddl-ce",
    ],
    "swap-back": [
        *("module load ddl-ce/2.0.0", "module swap ddl-ce/2.0.0 ddl-ce/1.0.0"),
        *("{swapped}", "module purge"),
    ],
}


#: All sets of variables in bash; in the other shells, `make test` has two of them.
RESTORED = [
    pytest.param(
        name,
        preset,
        id=f"{name}-{preset}",
        marks=[]
        if name.endswith("bash") or (preset in SOME_PRESETS and not name.endswith("fish"))
        else [pytest.mark.slow],
    )
    for name in (f"{system}-{shell}" for system in SYSTEMS for shell in SHELLS)
    for preset in PRESETS
]


@pytest.mark.parametrize(("machine", "preset"), RESTORED, indirect=["machine"])
def test_unload_restores_exactly(machine: Machine, tmp_path: Path, preset: str) -> None:
    presets = PRESETS[preset]
    if machine.shell.name == "tcsh":
        presets = {name: value.replace(ODD, "x $y") for name, value in presets.items()}
    steps = ["{before}", "module load ddl-ce/1.0.0", "{loaded}"]
    for name, commands in SEQUENCES.items():
        steps += [*commands, "{" + name + "}"]
    said = machine.run(tmp_path, steps, presets)
    before, loaded = read_snap(tmp_path / "before"), read_snap(tmp_path / "loaded")
    prefix = machine.prefix
    assert loaded["CONDA_PREFIX"] == str(prefix), said
    assert loaded["CONDA_DEFAULT_ENV"] == "ddl-ce"
    assert loaded["CONDARC"] == f"{prefix}/.condarc"
    assert loaded["PYTHONNOUSERSITE"] == "1"
    assert loaded["PATH"] == f"{prefix}/libexec:{prefix}/bin:{before['PATH']}"
    assert loaded["DDLT_RELEASE"] == "1.0.0"
    assert {name: loaded[name] for name in machine.values} == machine.values
    assert loaded["DDLT_DEFAULT"] == before.get("DDLT_DEFAULT", "ours")
    assert loaded["CONDA_SHLVL"] == "1"
    assert "LD_LIBRARY_PATH" not in loaded
    # conda stops where both of these are set, and the user may have set either.
    folders = {"CONDA_ENVS_PATH", "CONDA_ENVS_DIRS"}
    assert folders & set(loaded) == folders & set(before)
    assert read_snap(tmp_path / "swapped") == loaded, said
    for name in SEQUENCES:
        assert read_snap(tmp_path / name) == before, f"{name}: {said}"


@pytest.mark.parametrize("manpath", [None, "", "/m", "/m:"])
def test_manpath_keeps_the_systems_pages(
    machine: Machine, tmp_path: Path, manpath: str | None
) -> None:
    env = {} if manpath is None else {"MANPATH": manpath}
    said = machine.run(tmp_path, ["{before}", "module load ddl-ce/1.0.0", "{loaded}"], env)
    # Environment Modules has added the system's own folder when it was initialised.
    before = read_snap(tmp_path / "before").get("MANPATH", "")
    expected = f"{machine.prefix}/share/man:{before}"
    assert read_snap(tmp_path / "loaded")["MANPATH"] == expected, said


def test_the_users_folders_come_first(machine: Machine, tmp_path: Path) -> None:
    machine.run(tmp_path, ["module load ddl-ce/1.0.0", "{loaded}"])
    home, root = Path(read_snap(tmp_path / "loaded")["HOME"]), machine.prefix.parents[2]
    loaded = read_snap(tmp_path / "loaded")
    assert loaded["CONDA_PKGS_DIRS"] == f"{home}/.cache/ddl-ce/conda-pkgs,{root}/pkgs"
    assert loaded["DDLT_HOME"] == f"{home}/data"
    machine.run(tmp_path, ["module load ddl-ce/1.0.0", "{loaded}"], {"CONDA_PKGS_DIRS": "/mine"})
    assert read_snap(tmp_path / "loaded")["CONDA_PKGS_DIRS"].startswith("/mine,")


def test_programs_are_the_environments(machine: Machine, tmp_path: Path) -> None:
    steps = ["module load ddl-ce/1.0.0", "python", "ddlrun", "module unload ddl-ce", "ddlrun"]
    said = machine.run(tmp_path, steps).splitlines()
    assert "python of 1.0.0" in said
    assert said.count("ddlrun of 1.0.0") == 1


def test_default_is_the_last_written_without_a_current_release(
    machine: Machine, tmp_path: Path
) -> None:
    said = machine.run(tmp_path, ["module load ddl-ce", "ddlrun"])
    assert "ddlrun of 1.0.0" in said


def test_another_release_replaces_or_is_refused(machine: Machine, tmp_path: Path) -> None:
    """Lmod swaps by itself; Environment Modules says what to unload."""
    steps = ["{before}", "module load ddl-ce/2.0.0", "module load ddl-ce/1.0.0", "{both}"]
    said = machine.run(tmp_path, [*steps, "module purge", "{after}"])
    release = read_snap(tmp_path / "both")["DDLT_RELEASE"]
    if machine.system.name == "lmod":
        assert release == "1.0.0", said
    else:
        assert release == "2.0.0", said
        assert "conflict" in said
    assert read_snap(tmp_path / "after") == read_snap(tmp_path / "before")


OTHER = {"CONDA_PREFIX": "/other", "CONDA_DEFAULT_ENV": "other", "CONDA_SHLVL": "1"}


def activation(machine: Machine, folder: Path, below: Path | None = None) -> str:
    """The command that activates another environment, as conda's scripts do.

    It goes on top of the environment `below` if there is one, beside which it stays on the path.
    """
    path = {"tcsh": 'setenv PATH "/other/bin:$PATH"', "fish": "set -gx PATH /other/bin $PATH"}
    other = dict(OTHER)
    if below:
        other |= {"CONDA_SHLVL": "2", "CONDA_PREFIX_1": f"'{below}'", "CONDA_STACKED_2": "true"}
    lines = [machine.shell.setenv.format(name=n, value=v) for n, v in other.items()]
    lines.append(path.get(machine.shell.name, 'export PATH="/other/bin:$PATH"'))
    script = folder / f"activate-{bool(below)}.{machine.shell.name}"
    script.write_text("\n".join(lines) + "\n")
    return f"{machine.shell.source} {script}"


def test_unload_leaves_an_environment_activated_since(machine: Machine, tmp_path: Path) -> None:
    activate = activation(machine, tmp_path)
    user = machine.shell.setenv.format(name="CONDARC", value="/mine")
    machine.run(tmp_path, [activate, user, "{expected}"], {"GDAL_DATA": "/g"})
    on_top = activation(machine, tmp_path, machine.prefix)
    steps = ["module load ddl-ce", on_top, user, "{both}", "module unload ddl-ce", "{after}"]
    said = machine.run(tmp_path, steps, {"GDAL_DATA": "/g"})
    assert read_snap(tmp_path / "both")["DDLT_RELEASE"] == "1.0.0", said
    assert read_snap(tmp_path / "after") == read_snap(tmp_path / "expected"), said


def test_load_works_again_after_the_user_changed_a_variable(
    machine: Machine, tmp_path: Path
) -> None:
    change = machine.shell.setenv.format(name="CONDARC", value="/second")
    cycle = ["module load ddl-ce", "module unload ddl-ce"]
    said = machine.run(tmp_path, [*cycle, change, "{before}", *cycle, "{after}"], OWN)
    assert read_snap(tmp_path / "before")["CONDARC"] == "/second"
    assert read_snap(tmp_path / "after") == read_snap(tmp_path / "before"), said


def test_unload_takes_the_release_from_below_two_others(machine: Machine, tmp_path: Path) -> None:
    levels = {
        **{"CONDA_SHLVL": "3", "CONDA_PREFIX": "/top", "CONDA_DEFAULT_ENV": "top"},
        **{"CONDA_PREFIX_1": f"'{machine.prefix}'", "CONDA_PREFIX_2": "/middle"},
        **{"CONDA_STACKED_3": "true", "__CONDA_SHLVL_2_DDLT_VAR": "'a b'"},
    }
    activate = [machine.shell.setenv.format(name=n, value=v) for n, v in levels.items()]
    steps = ["{before}", "module load ddl-ce", *activate, "module unload ddl-ce", "{after}"]
    said = machine.run(tmp_path, steps)
    expected = read_snap(tmp_path / "before") | {
        **{"CONDA_SHLVL": "2", "CONDA_PREFIX": "/top", "CONDA_DEFAULT_ENV": "top"},
        **{"CONDA_PREFIX_1": "/middle", "CONDA_STACKED_2": "true"},
        "__CONDA_SHLVL_1_DDLT_VAR": "a b",
    }
    assert read_snap(tmp_path / "after") == expected, said


def test_unload_leaves_an_environment_in_its_place(machine: Machine, tmp_path: Path) -> None:
    """The user has left the release by `conda deactivate`, and activated another instead."""
    leave = [machine.shell.setenv.format(name=n, value=v) for n, v in OTHER.items()]
    steps = ["{before}", "module load ddl-ce", *leave, "module unload ddl-ce", "{after}"]
    said = machine.run(tmp_path, steps)
    assert read_snap(tmp_path / "after") == read_snap(tmp_path / "before") | OTHER, said


@pytest.mark.parametrize(
    "active", [{"CONDA_PREFIX": "/other"}, {"CONDA_PREFIX": "/other", "CONDA_SHLVL": "1"}]
)
def test_load_refuses_beside_another_environment(
    machine: Machine, tmp_path: Path, active: dict[str, str]
) -> None:
    said = machine.run(tmp_path, ["{before}", "module load ddl-ce", "{after}"], active)
    message = "ddl-ce/1.0.0 cannot be loaded while another conda environment is active"
    assert " ".join(said.split()).count(message) == 1, said
    assert "executing" not in said  # no stack trace of the module system
    assert "conda deactivate (CONDA_PREFIX=/other)" in " ".join(said.split())
    assert read_snap(tmp_path / "after") == read_snap(tmp_path / "before")


def test_load_refuses_beside_another_pythons_home(machine: Machine, tmp_path: Path) -> None:
    """With it, the release's Python looks for its packages there, and finds none."""
    steps = ["{before}", "module load ddl-ce", "{after}"]
    said = machine.run(tmp_path, steps, {"PYTHONHOME": "/usr"})
    message = "ddl-ce/1.0.0 cannot be loaded while PYTHONHOME is set"
    assert " ".join(said.split()).count(message) == 1, said
    assert "executing" not in said  # no stack trace of the module system
    assert read_snap(tmp_path / "after") == read_snap(tmp_path / "before")


def test_load_refuses_a_release_that_is_gone_and_unload_works(
    machine: Machine, tmp_path: Path
) -> None:
    status = "$status" if machine.shell.name in ("tcsh", "fish") else "$?"
    origin, away = machine.prefix / ORIGIN, machine.prefix / "away"
    move, back = f"mv '{origin}' '{away}'", f"mv '{away}' '{origin}'"
    steps = ["{before}", "module load ddl-ce/1.0.0", move, "module unload ddl-ce", "{unloaded}"]
    steps += ["module load ddl-ce/1.0.0", f"echo status: {status}", "{after}", back]
    said = machine.run(tmp_path, steps)
    plain = " ".join(said.split())
    message = f"ddl-ce/1.0.0 cannot be loaded: its release {machine.prefix} is gone; see which "
    assert plain.count(message + "others there are with: module avail ddl-ce") == 1, said
    assert "status: 1" in said
    assert "executing" not in said  # no stack trace of the module system
    before = read_snap(tmp_path / "before")
    assert read_snap(tmp_path / "unloaded") == before, said
    assert read_snap(tmp_path / "after") == before, said


@pytest.mark.parametrize("level", [{}, {"CONDA_SHLVL": "1"}])
def test_load_goes_where_only_its_own_prefix_is_left(
    machine: Machine, tmp_path: Path, level: dict[str, str]
) -> None:
    """As in a batch job that inherited the variables but not the list of modules."""
    env = {"CONDA_PREFIX": str(machine.prefix), **level}
    steps = ["{before}", "module load ddl-ce/1.0.0", "{loaded}", "module unload ddl-ce", "{after}"]
    said = machine.run(tmp_path, steps, env)
    assert read_snap(tmp_path / "loaded")["DDLT_RELEASE"] == "1.0.0", said
    assert read_snap(tmp_path / "after") == read_snap(tmp_path / "before"), said


def test_a_subshell_unloads_what_its_parent_loaded(machine: Machine, tmp_path: Path) -> None:
    child = tmp_path / "child"
    shell, tree = machine.shell, machine.written.trees[machine.system.writer]
    lines = [
        f"{shell.source} '{machine.system.init / shell.name}'",
        *(f"module use '{tree}'", "module unload ddl-ce", snap(tmp_path / "after")),
        *("module load ddl-ce/2.0.0", snap(tmp_path / "child-loaded")),
    ]
    child.write_text("\n".join(lines) + "\n")
    nested = " ".join([*shell.argv, str(child)])
    steps = [
        "{before}",
        "module load ddl-ce",
        "{loaded}",
        nested,
        "{parent}",
        "module purge",
        "{end}",
    ]
    said = machine.run(tmp_path, steps, OWN)
    snaps = {n: read_snap(tmp_path / n) for n in ("before", "loaded", "after", "parent", "end")}
    assert snaps["after"] == snaps["before"], said
    assert snaps["parent"] == snaps["loaded"]
    assert snaps["end"] == snaps["before"]
    assert read_snap(tmp_path / "child-loaded")["DDLT_RELEASE"] == "2.0.0"


SITE = {
    "lmod": 'prepend_path("PATH", "/site/bin")\npushenv("PYTHONNOUSERSITE", "0")\n',
    "environment-modules": "#%Module\nprepend-path PATH /site/bin\npushenv PYTHONNOUSERSITE 0\n",
}


@pytest.fixture
def site_module(machine: Machine, tmp_path: Path) -> str:
    """The command that makes a site's own module available."""
    suffix = ".lua" if machine.system.name == "lmod" else ""
    path = tmp_path / "site" / "site" / f"1{suffix}"
    path.parent.mkdir(parents=True)
    path.write_text(SITE[machine.system.name])
    return f"module use {tmp_path / 'site'}"


@pytest.mark.parametrize("preset", [{}, {"PYTHONNOUSERSITE": "user"}], ids=["unset", "set"])
def test_inside_and_around_a_sites_module(
    machine: Machine, site_module: str, tmp_path: Path, preset: dict[str, str]
) -> None:
    inner = ["module load site", "module load ddl-ce", "module unload ddl-ce", "{only}"]
    outer = ["module load ddl-ce", "{ours}", "module load site", "module unload site", "{ours2}"]
    steps = [site_module, "{before}", *inner, "module unload site", "{inner}"]
    steps += [*outer, "module unload ddl-ce", "{outer}"]
    said = machine.run(tmp_path, steps, preset)
    snaps = {
        name: read_snap(tmp_path / name)
        for name in ("before", "only", "inner", "ours", "ours2", "outer")
    }
    assert snaps["only"]["PYTHONNOUSERSITE"] == "0"
    assert snaps["only"]["PATH"] == f"/site/bin:{snaps['before']['PATH']}", said
    assert snaps["ours2"]["PATH"] == snaps["ours"]["PATH"]
    lmods_own_stack = "__LMOD_STACK_PYTHONNOUSERSITE"  # Lmod leaves it after any pushenv
    for end in (snaps["inner"], snaps["outer"]):
        end.pop(lmods_own_stack, None)
        assert end == snaps["before"], said


def test_a_sites_module_survives_our_unload(
    machine: Machine, site_module: str, tmp_path: Path
) -> None:
    loads = ["module load ddl-ce", "module load site"]
    said = machine.run(tmp_path, [site_module, *loads, "module unload ddl-ce", "{after}"])
    after = read_snap(tmp_path / "after")
    assert after["PATH"] == f"/site/bin:{SYSTEM_PATH}", said
    assert after["PYTHONNOUSERSITE"] == "0"
    assert "CONDA_PREFIX" not in after
