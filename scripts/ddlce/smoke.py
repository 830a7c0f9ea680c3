"""How the smoke suite of an environment is started from outside it.

The suite is the environment's own program, `ddlce-smoke` of the package ddl-ce-smoke: it runs on
the environment's Python, with the variables that loading its module would set and none of the
caller's that could reach into it.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlce.emulate import emulated, machine_of
from ddlce.emulate.command import find_emulator
from ddlce.env.layout import Layout, find_env, read_origin
from ddlce.errors import InputError, MachineError, WorkError
from ddlce.lock import lock_path
from ddlce.model.envlock import EnvLock
from ddlce.modulefile.activation import run_activation
from ddlce.modulefile.writer import HOME
from ddlce.platforms import this_platform
from ddlce.settings import Settings
from ddlce.userpath import absolute

PROGRAM = "ddlce-smoke"
PACKAGE = "ddl-ce-smoke"

#: Where each instruction is emulated: a tenth of the speed, and less.
EMULATED = ("--quick", "--timeout", "1800")

#: What a job needs of its caller: who and where it is, the batch system's word, the GPUs.
KEPT = re.compile(
    r"HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TERM|TMPDIR|SSH_AUTH_SOCK"
    r"|(?:SLURM|LSB|LSF|PBS|OAR|LEARNER|PMI|PMIX|FLUX)_\w+|NUM_LEARNERS"
    r"|HYDRA_HOST_FILE|OMPI_MCA_orte_default_hostfile|I_MPI_HYDRA_HOST_FILE"
    r"|(?:CUDA|NVIDIA|ROCR|HIP)_VISIBLE_DEVICES"
)


@dataclass(frozen=True)
class Command:
    """A program with its arguments and its whole environment."""

    argv: list[str]
    environ: dict[str, str]


def smoke_command(
    settings: Settings,
    env: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    platform: str | None = None,
) -> Command:
    """What runs the smoke suite of `env`, emulated where it is another platform's.

    Args:
        env: an environment's or clone's name, ENV/RELEASE-DIGEST, or any conda prefix.
        platform: the release that this platform's lock of `env` names.

    Raises:
        InputError: there is no such environment.
        MachineError: it has no smoke suite, or nothing here emulates its platform.
    """
    prefix = find_release(settings, env, platform) if platform else find_prefix(settings, env)
    program = prefix / "bin" / PROGRAM
    if not os.access(program, os.X_OK):
        raise MachineError(
            f"{prefix} has no {PROGRAM}",
            f"install the package {PACKAGE} into it, for example: ddlce env install NAME {PACKAGE}",
        )
    argv = [str(program), *arguments]
    origin = read_origin(prefix)
    if origin and origin.platform != this_platform():
        find_emulator(origin.platform)  # before anything is downloaded for it
        argv = emulated(argv, origin.platform, machine_of(settings, origin.platform, prefix))
    return Command(argv, clean_environment(prefix, environ))


def pass_once(settings: Settings, prefix: Path, platform: str | None = None) -> tuple[Path, bool]:
    """Run the suite of a release with a report, unless it has passed before.

    Args:
        platform: its platform, if that is not this machine's.

    Returns:
        The report's page, and whether the suite was run now.

    Raises:
        WorkError: a part of the suite failed.
    """
    report = Layout(settings.root).reports(prefix)
    page = report / "report.html"
    if page.exists() and json.loads((report / "report.json").read_text())["passed"]:
        return page, False
    options = ["--local", "--report", str(report), *(EMULATED if platform else ())]
    command = smoke_command(settings, str(prefix), options, os.environ)
    done = subprocess.run(
        command.argv, env=command.environ, check=False, preexec_fn=_end_with_parent
    )
    if done.returncode:
        raise WorkError(f"the smoke suite of {prefix} failed", f"see {page}")
    return page, True


def _end_with_parent() -> None:
    """The suite, and so its ranks, get SIGTERM should ddlce be killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def find_release(settings: Settings, env: str, platform: str) -> Path:
    """The release that a platform's lock of `env` names.

    Raises:
        InputError: it is not locked, or not installed.
    """
    lock = EnvLock.load(lock_path(settings, env, platform))
    prefix = Layout(settings.root).prefix(lock.env, lock.release, lock.digest)
    if read_origin(prefix) is None:
        raise InputError(
            f"{prefix} is not there, which the lock of {env} for {platform} names",
            f"ddlce env create {env} --platform {platform}",
        )
    return prefix


def find_prefix(settings: Settings, env: str) -> Path:
    """The prefix of an environment of ours, by name or path, or of any conda environment by path.

    Raises:
        InputError: neither.
    """
    path = absolute(env, "the environment") if "/" in env else Path(env)
    if "/" in env and (path / "conda-meta").is_dir() and not read_origin(path):
        return path.resolve()
    if "/" in env and path.is_dir() and not (path / "conda-meta").is_dir():
        raise InputError(f"{env} is not an environment", "it has no conda-meta: see ddlce env list")
    return find_env(settings, env)


def clean_environment(prefix: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a shell that knows nothing but the activated `prefix`.

    Args:
        environ: the caller's variables, of which those in KEPT stay.

    Raises:
        InputError: an activation script does what no modulefile can do.
    """
    kept = {name: value for name, value in environ.items() if KEPT.fullmatch(name)}
    origin = read_origin(prefix)
    final = run_activation(prefix, origin.env if origin else prefix.name, kept).final
    home = kept.get("HOME", "/")
    activated = {name: value.replace(HOME, home) for name, value in final.items()}
    return {**activated, "HOME": home, "PYTHONNOUSERSITE": "1"}
