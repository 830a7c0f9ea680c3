"""Installing system packages, where this user may."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

from ddlce.errors import MachineError


def run_fix(manager: str, command: list[str]) -> bool:
    """Run the install command as root or through passwordless sudo.

    The installer's own output goes to standard error. Package lists are refreshed first for
    apt, which does not do so by itself.

    Returns:
        True when the command was run; False when this user may not (nothing is changed).

    Raises:
        MachineError: the installer failed.
    """
    prefix = _as_root()
    if prefix is None:
        return False
    steps = [["apt-get", "update"], command] if manager == "apt" else [command]
    for step in steps:
        ran = subprocess.run(
            [*prefix, *step],
            stdout=sys.stderr,
            check=False,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
        if ran.returncode:
            raise MachineError(
                f"'{shlex.join([*prefix, *step])}' failed (exit {ran.returncode})",
                "its own message is above; run it by hand once that is mended",
            )
    return True


def _as_root() -> list[str] | None:
    """What to put before a command so that it runs as root; None when that is not allowed."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if (
        sudo
        and not subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode
    ):
        return [sudo, "-n", "DEBIAN_FRONTEND=noninteractive"]
    return None
