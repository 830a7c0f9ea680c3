"""Mounts in the namespace of an emulated program."""

from __future__ import annotations

import subprocess

from ddlce.errors import MachineError


def mount(*words: str, problem: str, hint: str) -> None:
    """Mount as `mount WORDS` does.

    Args:
        problem: the error's begin: what cannot be done without.
        hint: what to do then.

    Raises:
        MachineError: the kernel refuses, or there is no such program.
    """
    command = ["mount", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise MachineError(f"{problem}: mount: {error.strerror}", hint) from error
    if done.returncode:
        raise MachineError(f"{problem}: {done.stderr.strip()}", hint)
