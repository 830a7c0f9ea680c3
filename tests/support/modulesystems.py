"""Real module systems in real shells.

Debian's packages `lmod` and `environment-modules` exclude each other. The one that is not
installed is downloaded with apt-get and unpacked beside, with its paths rewritten.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from ddlce.locks import locked
from support.run import run

UNPACKED = Path(os.environ.get("DDLCE_TEST_TOOLS") or Path.home() / ".cache/ddl-ce/test-tools")

#: Folders of the packages that their programs name; rewritten in an unpacked copy.
FOLDERS = {
    "environment-modules": (
        "/usr/share/modules",
        "/usr/lib/x86_64-linux-gnu",
        "/etc/environment-modules",
    ),
    "lmod": ("/usr/share/lmod", "/usr/lib/lmod", "/etc/lmod"),
}

#: What the module systems keep for themselves, and what a shell changes by running a command.
BOOKKEEPING = re.compile(
    "_ModuleTable.*|__LMOD_REF_COUNT_.*|__MODULES_.*|LOADEDMODULES|_LMFILES_|_|SHLVL|PWD|OLDPWD"
)


@dataclass(frozen=True)
class System:
    """A module system.

    Attributes:
        name: Debian's.
        writer: the `system` of the writer that is for it.
        init: the folder with one initialisation file per shell.
    """

    name: str
    writer: str
    init: Path


@dataclass(frozen=True)
class Shell:
    """A shell and how its scripts are written.

    Attributes:
        name: of the program.
        argv: the program with options that keep the user's own files out.
        source: the command that runs a file in this shell.
        setenv: a format with {name} and {value}, the value being a plain word.
    """

    name: str
    argv: tuple[str, ...]
    source: str
    setenv: str


SHELLS = {
    "bash": Shell("bash", ("bash", "--noprofile", "--norc"), ".", "export {name}={value}"),
    "zsh": Shell("zsh", ("zsh", "-f"), ".", "export {name}={value}"),
    "tcsh": Shell("tcsh", ("tcsh", "-f"), "source", "setenv {name} {value}"),
    "fish": Shell("fish", ("fish", "--no-config"), "source", "set -gx {name} {value}"),
}


@cache
def find_system(name: str) -> System | str:
    """The module system, or the reason why it cannot be had."""
    if name == "lmod":
        writer, home = "Lmod", Path("/usr/share/lmod/lmod")
    else:
        writer, home = "Environment Modules", Path("/usr/share/modules")
    if not shutil.which("tclsh8.6" if name != "lmod" else "lua5.3"):
        return f"{name}: its interpreter is not installed (apt-get install lmod tcl)"
    if (home / "init" / "bash").is_file():
        return System(name, writer, home / "init")
    root = UNPACKED / name
    problem = _unpack(name, root)
    return problem or System(name, writer, root / home.relative_to("/") / "init")


def _unpack(name: str, root: Path) -> str | None:
    with locked(UNPACKED / ".lock"):
        if root.is_dir():
            return None
        partial = UNPACKED / f".{name}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for command in (["apt-get", "download", name], ["sh", "-c", "dpkg -x *.deb ."]):
            try:
                run(command, cwd=partial, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                return f"{name} is not installed and cannot be downloaded ({error})"
        for path in partial.rglob("*"):
            if path.is_file() and not path.is_symlink():
                data = path.read_bytes()
                if b"\0" not in data:
                    for folder in FOLDERS[name]:
                        data = data.replace(folder.encode(), f"{root}{folder}".encode())
                    path.write_bytes(data)
        partial.rename(root)
    return None


def require(system: str, shell: str) -> tuple[System, Shell]:
    """The module system and the shell, or skip with the reason."""
    found = find_system(system)
    if isinstance(found, str):
        pytest.skip(found)
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed (apt-get install {shell})")
    return found, SHELLS[shell]


def snap(path: Path) -> str:
    """The command, in every shell, that writes the environment to a file."""
    return f"/usr/bin/env -0 > '{path}'"


def read_snap(path: Path) -> dict[str, str]:
    """The environment in a file, without bookkeeping."""
    lines = path.read_bytes().decode(errors="surrogateescape").split("\0")
    variables = dict(line.split("=", 1) for line in lines if line)
    return {n: value for n, value in variables.items() if not BOOKKEEPING.fullmatch(n)}


def run_shell(
    system: System, shell: Shell, tree: Path, commands: list[str], env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run commands in a shell after initialising the module system, with one tree in use."""
    init = system.init / shell.name
    lines = [f"{shell.source} '{init}'", f"module use '{tree}'", *commands]
    script = tree.parent / f"script-{os.getpid()}.{shell.name}"
    script.write_text("\n".join(lines) + "\n")
    base = {"HOME": str(tree.parent), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    return run([*shell.argv, str(script)], env={**base, **env}, cwd=tree.parent, timeout=120)
