"""Libraries from pip, pinned by hash, each list in an environment of its own."""

from __future__ import annotations

import hashlib
import os
import sys
import venv
from pathlib import Path

from ddlce.locks import locked
from support.run import run

REQUIREMENTS = Path(__file__).parents[1] / "bench" / "lab" / "requirements"


class Unavailable(Exception):
    """Libraries cannot be had on this machine; the text says why."""


def cache() -> Path:
    """The user's folder for peers and compiled workers."""
    base = os.environ.get("DDLCE_CACHE") or Path.home() / ".cache" / "ddl-ce"
    return Path(base).expanduser().absolute() / "bench-peers"


def pip_prefix(name: str, *more: str) -> Path:
    """An environment with the packages of `NAME.txt` in `REQUIREMENTS`; made when it is not there.

    It is made in its place, since it has its own path in it: whoever comes meanwhile waits.

    Args:
        more: options for pip, always the same ones with one name.
    """
    wanted = REQUIREMENTS / f"{name}.txt"
    prefix = cache() / f"{name}-{digest_of(wanted.read_bytes())}"
    done = prefix / "installed"
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with locked(prefix.with_name(f".{prefix.name}.lock")):
        if not done.exists():
            venv.create(prefix, clear=True)
            pip = [sys.executable, "-m", "pip", "--python", str(prefix / "bin" / "python")]
            options = ("install", "--quiet", "--disable-pip-version-check", "--require-hashes")
            command = [*pip, *options, *more, "-r", str(wanted)]
            run_or_complain(command, f"pip could not install {name}")
            done.touch()
    return prefix


def digest_of(*parts: bytes) -> str:
    """Ten hex digits that stand for these bytes."""
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()[:10]


def run_or_complain(command: list[str], complaint: str) -> None:
    """Run a command that gets or makes a library.

    Raises:
        Unavailable: it failed; the complaint, and the last line that it wrote.
    """
    done = run(command)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Unavailable(f"{complaint}: {lines[-1]}")
