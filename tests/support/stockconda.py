"""Stock conda, to ask it what it makes of our environments, caches and modules.

conda is in no package registry that tests may use, but conda-lock carries all of conda 24.7.1 under
another name. It is installed beside the other tools of the tests, and its modules get their own
name back. Only conda's shell scripts are missing: `SHELL` is their POSIX function.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ddlce.files import sha256_file
from support.minienv import PUBLIC_PYTHON, PYTHONPATH
from support.run import run
from support.tools import once, pip

REQUIREMENTS = Path(__file__).with_name("stock-conda.txt")

#: conda's own function for bash and zsh, with `{command}` for its program.
SHELL = """\
conda() {{
   case "$1" in
      activate|deactivate) eval "$(PS1="${{PS1:-}}" {command} shell.posix "$@")" ;;
      *) {command} "$@" ;;
   esac
}}
"""


@dataclass(frozen=True)
class StockConda:
    """conda as a program.

    Attributes:
        folder: its modules.
        python: the interpreter that runs it.
    """

    folder: Path
    python: str = sys.executable

    @property
    def command(self) -> str:
        """The program with its first arguments, for a shell; it needs `environ`."""
        return f"env PYTHONPATH={self.folder}:{PYTHONPATH} {self.python} -P -m conda"

    @property
    def function(self) -> str:
        """The shell function `conda`."""
        return SHELL.format(command=self.command)

    def run(
        self, *args: str | Path, env: Mapping[str, str], user: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `conda ARGS`."""
        command = [*self.command.split(), *map(str, args)]
        if user is not None:
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
        return run(command, env=dict(env), cwd="/", timeout=300)

    def public(self, folder: Path) -> StockConda:
        """A copy that other users can run."""
        shutil.copytree(self.folder, folder)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        return StockConda(folder, PUBLIC_PYTHON)


def find_conda() -> StockConda:
    """Stock conda; the test is skipped where it cannot be downloaded."""

    def make(folder: Path) -> None:
        options = ("--no-deps", "--target", folder, "--require-hashes", "--requirement")
        pip(sys.executable, "install", *options, REQUIREMENTS)
        _name_back(folder)

    return StockConda(once(f"conda-{sha256_file(REQUIREMENTS)[:12]}", make))


def _name_back(folder: Path) -> None:
    """Undo conda-lock's renaming of conda."""
    carried = folder / "conda_lock" / "_vendor" / "conda"
    for path in carried.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for name in ("conda_lock._vendor.conda", "conda_lock.vendor.conda"):
            text = text.replace(name, "conda")
        path.write_text(text, encoding="utf-8")
    carried.rename(folder / "conda")
    for rest in folder.glob("conda_lock*"):  # its distribution says that conda has a plugin in it
        shutil.rmtree(rest)


def conda_environ(home: Path, **variables: str) -> dict[str, str]:
    """What a user with that home starts conda with: nothing else, and no network."""
    kept = {name: os.environ[name] for name in ("LANG", "TZ") if name in os.environ}
    base = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "CONDA_OFFLINE": "1"}
    # The solver that conda comes with by default is a package of its own; cloning solves nothing.
    return {**kept, **base, "CONDA_SOLVER": "classic", "PYTHONDONTWRITEBYTECODE": "1", **variables}
