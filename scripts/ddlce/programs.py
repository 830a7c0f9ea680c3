"""How programs are started: our own Python, and tools of the machine that are asked something.

Neither takes code from the current folder, which may be anybody's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence


def own_python(*arguments: str) -> list[str]:
    """The command line that runs `arguments` on the interpreter that runs us.

    -P: the current folder is no place to import from. -I, where we were started so: PYTHONPATH
    and the user's site-packages are none either.
    """
    return [sys.executable, "-I" if sys.flags.isolated else "-P", *arguments]


def ask(command: Sequence[str], timeout: float = 20) -> subprocess.CompletedProcess[str]:
    """Run a tool that tells something, in English; whatever bytes it prints become text.

    It gets an empty standard input: some tools process that beside printing their version. It
    runs in the root folder, where none finds a configuration that another user has put there.

    Raises:
        OSError: it cannot be started, or does not end within `timeout` seconds.
    """
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
            cwd="/",
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{command[0]} did not end within {timeout:.0f} s") from None


def absolute_only(path: str) -> str:
    """A list of folders like PATH without those that depend on the current folder.

    An empty part means the current folder: `PATH=$PATH:` is easily written.
    """
    return os.pathsep.join(part for part in path.split(os.pathsep) if part[:1] == "/")
