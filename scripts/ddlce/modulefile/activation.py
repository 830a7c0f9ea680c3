"""What a prefix's activation does, seen by running it: conda's steps, in a bare bash."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ddlce import jsontext
from ddlce.errors import InputError, MachineError
from ddlce.modulefile.writer import HOME

TIMEOUT_S = 60
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

#: Variables that the shell itself changes.
SHELLS_OWN = {"_", "PWD", "OLDPWD", "SHLVL"}

# Sources each script and writes down, before the first and after each, all that it may have
# changed. Its arguments: the folder to write to, the path of env, the scripts.
DRIVER = r"""
__ddlce_dump() {
    builtin declare -F > "$1/functions"
    builtin alias -p > "$1/aliases"
    builtin pwd > "$1/folder"
    builtin umask > "$1/umask"
    "$__ddlce_env" -0 > "$1/env"
    builtin : > "$1/done"
}
__ddlce_out=$1 __ddlce_env=$2 __ddlce_step=0
shift 2
__ddlce_dump "$__ddlce_out/0"
for __ddlce_script in "$@"; do
    __ddlce_step=$((__ddlce_step + 1))
    . "$__ddlce_script" < /dev/null
    __ddlce_dump "$__ddlce_out/$__ddlce_step"
done
"""

#: What a script may leave behind besides variables, and how we call it.
TRACES = {
    "functions": "defines a shell function",
    "aliases": "defines an alias",
    "folder": "changes the working directory",
    "umask": "changes the umask",
}


@dataclass(frozen=True)
class Run:
    """One run of the activation.

    Attributes:
        steps: the environment before the first script and after each one.
        scripts: the scripts, in the order in which they ran.
    """

    steps: list[dict[str, str]]
    scripts: list[Path]

    @property
    def final(self) -> dict[str, str]:
        """The environment after activation."""
        return self.steps[-1]

    def culprit(self, name: str) -> str:
        """The script that last changed a variable; conda's own state where no script did."""
        for index in range(len(self.scripts), 0, -1):
            if self.steps[index].get(name) != self.steps[index - 1].get(name):
                return str(self.scripts[index - 1])
        return "conda-meta/state"


def activation_scripts(prefix: Path) -> list[Path]:
    """The bash scripts that conda sources, in its order."""
    return sorted((prefix / "etc" / "conda" / "activate.d").glob("*.sh"))


def exported_names(prefix: Path) -> set[str]:
    """Names that the scripts' text exports or unsets, on any of their branches."""
    names: set[str] = set()
    for script in activation_scripts(prefix):
        text = script.read_text(encoding="utf-8", errors="replace")
        for words in re.findall(r"\b(?:export|unset|declare|typeset)\b([^;\n&|]*)", text):
            names.update(re.findall(r"(?<!\S)([A-Za-z_]\w*)(?==|\s|$)", words, re.ASCII))
    return names


def run_activation(prefix: Path, env_name: str, preset: Mapping[str, str]) -> Run:
    """Activate `prefix` in a bash that knows nothing else, with some variables already set.

    Args:
        env_name: what CONDA_DEFAULT_ENV says while the scripts run.
        preset: variables that the user is to have.

    Returns:
        The run; the user's home inside values is written as `writer.HOME`.

    Raises:
        InputError: a script ends the shell, hangs, or does what no modulefile can do.
        MachineError: there is no bash.
    """
    bash, env = shutil.which("bash"), shutil.which("env")
    if not bash or not env:
        raise MachineError("bash is needed to read activation scripts", "install: bash")
    scripts = activation_scripts(prefix)
    with tempfile.TemporaryDirectory(prefix="ddlce-activation-") as folder:
        home = Path(folder, "home")
        home.mkdir()
        out = Path(folder, "out")
        dumps = [out / str(step) for step in range(len(scripts) + 1)]
        for dump in dumps:
            dump.mkdir(parents=True)
        start = {"HOME": str(home), **preset, **conda_variables(prefix)}
        start |= {
            "PATH": f"{prefix / 'bin'}:{preset.get('PATH', SYSTEM_PATH)}",
            "CONDA_PREFIX": str(prefix),
            "CONDA_DEFAULT_ENV": env_name,
            "CONDA_SHLVL": "1",
        }
        command = [bash, "--noprofile", "--norc", "-c", DRIVER, "ddlce", str(out), env]
        try:
            ran = subprocess.run(
                [*command, *map(str, scripts)],
                env=start,
                cwd=home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            stderr = ran.stderr.decode(errors="replace").strip()
        except subprocess.TimeoutExpired:
            stderr = f"it did not end within {TIMEOUT_S} s"
        for script, dump in zip(scripts, dumps[1:], strict=True):
            if not (dump / "done").is_file():
                _refuse(script, "ends or blocks the shell", stderr)
        for index, script in enumerate(scripts):
            _refuse_traces(script, dumps[index], dumps[index + 1])
        owners = ["conda-meta/state", *map(str, scripts)]
        steps = [_read_env(d, str(home), o) for d, o in zip(dumps, owners, strict=True)]
    return Run(steps, scripts)


def conda_variables(prefix: Path) -> dict[str, str]:
    """The variables that conda sets by itself: those of packages, then those of the environment.

    Source: conda's `etc/conda/env_vars.d/*.json` and `conda-meta/state`.
    """
    files = sorted((prefix / "etc" / "conda" / "env_vars.d").glob("*.json"))
    state = prefix / "conda-meta" / "state"
    variables: dict[str, str] = {}
    for path in [*files, *([state] if state.is_file() else [])]:
        try:
            data = jsontext.load(path.read_text(encoding="utf-8"))
            content = data.get("env_vars", {}) if path == state else data
            variables.update({str(name): str(value) for name, value in content.items()})
        except (ValueError, AttributeError) as error:
            raise InputError(f"{path}: not what conda writes ({error})") from error
    return {name: value for name, value in variables.items() if value != "***unset***"}


def _read_env(dump: Path, home: str, owner: str) -> dict[str, str]:
    variables: dict[str, str] = {}
    for line in filter(None, (dump / "env").read_bytes().split(b"\0")):
        name, _, value = line.decode("utf-8", errors="surrogateescape").partition("=")
        if not value.isprintable() and any("\udc80" <= char <= "\udcff" for char in value):
            _refuse(owner, f"sets {name} to bytes that are not UTF-8", "")
        if name not in SHELLS_OWN:
            variables[name] = value.replace(home, HOME)
    return variables


def _refuse_traces(script: Path, before: Path, after: Path) -> None:
    for name, what in TRACES.items():
        old, new = ((folder / name).read_text(errors="replace") for folder in (before, after))
        if old != new:
            added = [line for line in new.splitlines() if line not in old.splitlines()]
            _refuse(script, f"{what}: {added[0].strip()}" if added else what, "")


def _refuse(script: Path | str, what: str, stderr: str) -> NoReturn:
    last = f" ({stderr.splitlines()[-1]})" if stderr else ""
    raise InputError(
        f"{script} {what}{last}: a modulefile can only change environment variables",
        "let the package's activation script only export variables, or leave it out",
    )
