"""An empty Debian 12 with Lmod: what a login node has when nothing of ours has reached it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from ddlce.locks import locked
from support.modulesystems import UNPACKED
from support.run import run
from support.userlands import KEYRING, Userland, mirror

SUITE = "bookworm"


def empty_system() -> Userland:
    """The system, made with debootstrap where it is not there yet.

    Raises:
        RuntimeError: debootstrap failed; its last words.
    """
    target = UNPACKED / "userlands" / f"{SUITE}-lmod"
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_suffix(".lock")):
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _debootstrap(unfinished)
            unfinished.rename(target)
    return Userland("debian-12", "2.36", target)


def _debootstrap(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = run(
            [
                *("unshare", "--mount", "debootstrap", "--variant=minbase", f"--keyring={KEYRING}"),
                *("--include=lmod", f"--cache-dir={folder}", SUITE, target, mirror()),
            ],
            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        )
    if done.returncode:
        raise RuntimeError(f"debootstrap {SUITE}: {(done.stdout + done.stderr)[-2000:]}")
    (target / "etc/hosts").write_text("127.0.0.1 localhost old\n")
    shutil.rmtree(target / "var/cache/apt")
