"""`ddlce env kernel`: a kernel spec for Jupyter that carries an environment's activation.

Source: Jupyter's documentation of jupyter_client, "Making kernels for Jupyter", for `kernel.json`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlce import jsontext
from ddlce.env.layout import read_origin
from ddlce.errors import InputError, MachineError, WorkError
from ddlce.files import explain_os_errors, write_atomic
from ddlce.modulefile.classify import Change
from ddlce.modulefile.content import environment_changes
from ddlce.modulefile.writer import HOME
from ddlce.overlay.model import Overlay, read_overlay
from ddlce.ownership import check_place
from ddlce.programs import ask
from ddlce.userpath import absolute
from ddlce.waiting import waiting_lock

#: Of kernel.json's metadata: whose kernel it is.
OURS = "ddl-ce"

#: Prints ipykernel's own spec, which says what that version can do; ends with 3 without ipykernel.
OWN_SPEC = """
import importlib.util, json, sys
if not importlib.util.find_spec("ipykernel"):
    sys.exit(3)
from ipykernel.kernelspec import get_kernel_dict
print(json.dumps(get_kernel_dict()))
"""


@dataclass(frozen=True)
class Environment:
    """What a kernel runs in.

    Attributes:
        prefix: the overlay, the clone or the release.
        name: the default name of its kernel.
        title: how people see it in Jupyter.
        variables: what the kernel's processes get.
        fix: how ipykernel comes into it.
    """

    prefix: Path
    name: str
    title: str
    variables: dict[str, str]
    fix: str


def describe(prefix: Path) -> Environment:
    """The overlay, clone or release at `prefix`, with its activation.

    Raises:
        InputError: there is none, an overlay's release is gone, or an activation does what can
            be said in no modulefile.
    """
    overlay = read_overlay(prefix)
    if overlay:
        return _describe_overlay(prefix, overlay)
    origin = read_origin(prefix)
    if origin is None:
        raise InputError(f"{prefix} is not a complete environment", "see: ddlce env list")
    variables = kernel_variables(
        [*environment_changes(prefix, origin), *_level(prefix, origin.env)], []
    )
    release = f"{origin.env} {origin.release}"
    if origin.kind == "release":
        fix = "make an overlay and install it there: ddlce env overlay NAME"
        return Environment(prefix, origin.env.lower(), release, variables, fix)
    title = f"{prefix.name} (clone of {release})"
    fix = f"{prefix}/bin/python -m pip install ipykernel"
    return Environment(prefix, prefix.name.lower(), title, variables, fix)


def _describe_overlay(prefix: Path, overlay: Overlay) -> Environment:
    release = Path(overlay.release)
    origin = read_origin(release)
    if origin is None:
        raise InputError(
            f"the release of the overlay {prefix} is gone: {release}",
            f"see what that means with: ddlce env check {prefix}",
        )
    changes = [*environment_changes(release, origin), *_level(release, origin.env)]
    variables = kernel_variables(changes, [str(prefix / "bin")])
    variables["VIRTUAL_ENV"] = _literal(str(prefix))
    title = f"{prefix.name} (on {origin.env} {origin.release})"
    fix = f"{prefix}/bin/pip install ipykernel"
    return Environment(prefix, prefix.name.lower(), title, variables, fix)


def _level(prefix: Path, env: str) -> list[Change]:
    """The variables that the module sets by `conda_level`."""
    level = {"CONDA_PREFIX": str(prefix), "CONDA_DEFAULT_ENV": env, "CONDA_SHLVL": "1"}
    return [Change(name, "set", (value,)) for name, value in level.items()]


def kernel_variables(changes: Iterable[Change], first: list[str]) -> dict[str, str]:
    """`env` of kernel.json: `${NAME}` in it is Jupyter's own variable, `$$` a dollar.

    Jupyter has PATH and HOME for sure. It leaves `${NAME}` as it is where it has no such variable,
    so all others get the environment's own elements only.

    Args:
        changes: what a load of the module changes.
        first: folders that stand in PATH before all others.
    """
    variables = {}
    for change in changes:
        value = _literal(change.value)
        if change.name == "PATH":
            value = ":".join([*map(_literal, first), value, "${PATH}"])
        elif change.tail:
            value += change.delim
        variables[change.name] = value
    return variables


def _literal(value: str) -> str:
    return value.replace("$", "$$").replace(HOME, "${HOME}")


def kernels_folder(prefix: Path | None) -> Path:
    """Where kernel specs are: below `prefix`, else in the user's Jupyter data folder.

    Reads JUPYTER_DATA_DIR and XDG_DATA_HOME. Source: jupyter_core, `jupyter_data_dir`.
    """
    if prefix:
        return prefix.absolute() / "share" / "jupyter" / "kernels"
    named = os.environ.get("JUPYTER_DATA_DIR")
    if named:
        return Path(named).absolute() / "kernels"
    data = absolute(os.environ.get("XDG_DATA_HOME") or "~/.local/share", "XDG_DATA_HOME")
    return data / "jupyter" / "kernels"


def write_kernel(
    environment: Environment, name: str | None, into: Path, *, force: bool = False
) -> Path:
    """Write the kernel spec of an environment; returns its folder.

    Args:
        name: of the kernel; the environment's by default.
        force: take the place of a kernel for something else.

    Raises:
        InputError: not a name for a kernel, another kernel has it, or there is no ipykernel.
        MachineError: the folder cannot be written, others could change it, or the environment's
            Python cannot be run.
        WorkError: that Python fails.
    """
    name = (name or environment.name).lower()
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise InputError(
            f"{name!r} is not a name for a kernel", "use letters, digits, '.', '_' and '-'"
        )
    folder = into / name
    check_place(folder, "the folder of the kernel")
    _check_free(folder, environment.prefix, force)
    own = _own_spec(environment)
    python = str(environment.prefix / "bin" / "python")
    spec = {
        **own,
        # -P: from the folder of a notebook, no ipykernel is taken.
        "argv": [python, "-P", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": environment.title,
        "metadata": {**own.get("metadata", {}), OURS: {"prefix": str(environment.prefix)}},
        "env": environment.variables,
    }
    with waiting_lock(into / ".ddlce.lock"):
        _check_free(folder, environment.prefix, force)  # asking ipykernel took its time
        write_atomic(folder / "kernel.json", json.dumps(spec, indent=1) + "\n")
    return folder


def _check_free(folder: Path, prefix: Path, force: bool) -> None:
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        kind = "a symbolic link" if folder.is_symlink() else "no folder"
        raise InputError(f"{folder} is {kind}", "remove it, or choose another name")
    with explain_os_errors(folder):
        taken = any(folder.iterdir())
    if taken and not force and _owner(folder / "kernel.json") != prefix.resolve():
        raise InputError(
            f"the kernel {folder.name} in {folder.parent} is not that of {prefix}",
            "choose another name, or take its place with --force",
        )


def _owner(path: Path) -> Path | None:
    """The environment that a kernel of ours is for."""
    try:
        spec: Any = jsontext.load(path.read_bytes())
        return Path(str(spec["metadata"][OURS]["prefix"])).resolve()
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _own_spec(environment: Environment) -> dict[str, Any]:
    """What the environment's own ipykernel says of itself."""
    python = environment.prefix / "bin" / "python"
    try:
        asked = ask([str(python), "-I", "-c", OWN_SPEC], timeout=120)
    except OSError as error:
        raise MachineError(
            f"cannot run {python}: {error.strerror or error}", "check its environment"
        ) from error
    if asked.returncode == 3:
        raise InputError(f"{environment.prefix} has no ipykernel", environment.fix)
    try:
        spec = jsontext.load(asked.stdout)
    except ValueError:
        spec = None
    if asked.returncode or not isinstance(spec, dict):
        said = (asked.stderr.strip().splitlines() or [f"status {asked.returncode}"])[-1]
        raise WorkError(
            f"the ipykernel in {environment.prefix} does not work: {said}",
            "install it again, with pip install --force-reinstall ipykernel",
        )
    return spec
