"""Overlays: in the scripts that ddlrun writes, and in staged jobs. Real venvs of this Python."""

import os
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from ddl.launch.errors import LaunchError
from ddl.launch.options import parse
from ddl.launch.overlay import local_overlay, overlay_of
from ddl.launch.script.overlay import activation_of
from ddl.launch.script.request import read_request
from ddl.launch.script.systems import SYSTEMS
from ddl.launch.script.text import script_text

SHELLS = [name for name, system in SYSTEMS.items() if not system.is_manifest]
BASE = Path(sys.base_prefix)


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    """A venv of this Python's base that has a module, and an editable one by a `.pth` file."""
    folder = tmp_path / "it's mine"
    venv.create(folder, system_site_packages=True, symlinks=True)
    site = next(folder.glob("lib/python3.*/site-packages"))
    (site / "own_module.py").write_text("")
    (tmp_path / "edited").mkdir()
    (tmp_path / "edited" / "edited_module.py").write_text("")
    (site / "edited.pth").write_text(f"{tmp_path}/edited\n")
    return folder


# -- in scripts -----------------------------------------------------------------------------------


#: The tests may run from a release, whose module a script would load.
NO_MODULE = ("-module", "none")


def script(*words: str, environ: dict[str, str]) -> str:
    return script_text(read_request(parse([*words, "-N", "1", "train.py"])), environ)


@pytest.mark.parametrize("system", SHELLS)
@pytest.mark.parametrize("is_named", [True, False])
def test_the_script_activates_it(system: str, is_named: bool, overlay: Path) -> None:
    program = overlay / "bin" / "ddlrun"
    program.write_text('#!/bin/sh\necho "$VIRTUAL_ENV"; command -v python\n')
    program.chmod(0o755)
    if is_named:
        text = script("-script", system, *NO_MODULE, "-overlay", str(overlay), environ={})
    else:
        text = script("-script", system, *NO_MODULE, environ={"VIRTUAL_ENV": str(overlay)})
    text = text.replace("bash -l", "bash")
    done = subprocess.run(
        ["bash", "-c", text],
        env={"PATH": os.environ["PATH"], "PBS_O_WORKDIR": "/"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{overlay}\n{overlay}/bin/python\n"


def test_without_one_the_script_says_nothing_of_it(overlay: Path) -> None:
    active = {"VIRTUAL_ENV": str(overlay)}
    none = script("-script", "slurm", "-overlay", "none", environ=active)
    assert none == script("-script", "slurm", environ={})
    assert "activate" not in none


def test_a_name_is_looked_up_where_overlays_are(tmp_path: Path) -> None:
    for folder in ("home/.local/share/ddl-ce-envs", "scratch"):
        (tmp_path / folder / "mine" / "bin").mkdir(parents=True)
        (tmp_path / folder / "mine" / "bin" / "activate").write_text("")
    home = {"HOME": f"{tmp_path}/home"}
    own = f"{tmp_path}/home/.local/share/ddl-ce-envs/mine/bin/activate"
    assert activation_of("mine", home) == own
    chosen = {**home, "CONDA_ENVS_PATH": f"{tmp_path}/scratch:/other"}
    assert activation_of("mine", chosen) == f"{tmp_path}/scratch/mine/bin/activate"
    assert activation_of("mine", {**home, "CONDA_ENVS_DIRS": "~/.local/share/ddl-ce-envs"}) == own


@pytest.mark.parametrize(
    ("named", "environ", "message", "hint"),
    [
        ("mine", {"HOME": "/no"}, "-overlay mine: there is no /no/.local", "ddlce env list"),
        (None, {"VIRTUAL_ENV": "/no/v"}, "VIRTUAL_ENV=/no/v: there is no /no/v/bin", "none"),
        ("/a\nb", {}, r"'-overlay /a\nb' has a character that no script can hold", ""),
    ],
)
def test_an_overlay_that_is_not_there(
    named: str | None, environ: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(LaunchError) as error:
        activation_of(named, environ)
    assert error.value.message.startswith(message)
    assert hint in error.value.hint


def test_manifests_refuse_it() -> None:
    with pytest.raises(LaunchError, match="-overlay does not go with -script mpijob"):
        script("-script", "mpijob", "-image", "x", "-overlay", "mine", environ={})


# -- staged ---------------------------------------------------------------------------------------


def test_a_staged_job_has_the_overlays_packages(overlay: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.symlink_to(BASE)  # stands for the copy: Python keeps to the path that it is called by
    environ = {"PATH": f"{overlay}/bin:{BASE}/bin:/bin", "VIRTUAL_ENV": str(overlay)}
    found = overlay_of(["python", "train.py"], environ, BASE)
    assert found == overlay
    off = {**environ, "PYTHONNOUSERSITE": "1"}
    words, variables = local_overlay(found, ["-v", "python", "x"], off, str(local))
    assert words == ["-v", "python", "x"]
    code = "import sys, own_module, edited_module; print(sys.prefix, own_module.__file__)"
    python = Path(sys.executable).resolve().name
    done = subprocess.run(
        ["sh", "-c", f"exec {python} -c {shlex.quote(code)}"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(" ", 1)[0] == str(local)
    assert done.stdout.rstrip().endswith("it's mine/lib/" + _site() + "/own_module.py")


def test_the_overlays_python_becomes_the_local_copys(overlay: Path) -> None:
    command = [f"{overlay}/bin/python3", "train.py", f"{overlay}/bin/data"]
    found = overlay_of(command, {}, BASE)
    assert found == overlay
    words, _ = local_overlay(found, ["-np", "2", *command], {}, "/l/e")
    assert words == ["-np", "2", "/l/e/bin/python3", "train.py", f"{overlay}/bin/data"]


def test_other_venvs_stay_as_they_are(overlay: Path, tmp_path: Path) -> None:
    active = {"VIRTUAL_ENV": str(overlay)}
    assert overlay_of(["python"], active, tmp_path) is None  # of another release
    config = overlay / "pyvenv.cfg"
    config.write_text(config.read_text().replace("packages = true", "packages = false"))
    assert overlay_of(["python"], active, BASE) is None
    config.unlink()
    assert overlay_of(["/bin/python"], active, BASE) is None
    assert overlay_of([], {}, BASE) is None


@pytest.mark.parametrize("python", ["{foreign}/bin/python3", "python3", "{base}/bin/python3"])
def test_another_python_keeps_its_own_packages(overlay: Path, tmp_path: Path, python: str) -> None:
    """It is named by its path, or it is the first on PATH; an overlay is active beside it."""
    foreign = tmp_path / "foreign"
    venv.create(foreign, symlinks=True)
    environ = {"VIRTUAL_ENV": str(overlay), "PATH": f"{foreign}/bin:{overlay}/bin:/bin"}
    command = [python.format(foreign=foreign, base=BASE), "train.py"]
    assert overlay_of(command, environ, BASE) is None
    assert overlay_of(["train.py"], environ, BASE) == overlay


def _site() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
