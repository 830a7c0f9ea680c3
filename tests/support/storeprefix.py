"""A prefix of what `ddlce build` left in the store; for another platform, run under emulation."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ddlce.emulate import emulated, machine_of
from ddlce.engine.index import index_channel
from ddlce.engine.install import CacheLayer, InstallRequest, install
from ddlce.engine.solve import solve
from ddlce.files import link_or_copy
from ddlce.plan import Plan
from ddlce.platforms import BUILD_PLATFORM, PLATFORMS
from ddlce.settings import load_settings
from ddlce.store import Store
from support.run import run

POWER = "linux-ppc64le"

#: Marks of tests that run programs for POWER from the store.
POWER_MARKS = [
    pytest.mark.built,
    pytest.mark.slow,
    pytest.mark.skipif(
        not any(map(shutil.which, PLATFORMS[POWER].emulators)),
        reason="no qemu-user on this machine",
    ),
]

#: RHEL 8: an older glibc than any of Debian's binaries was made for.
MACHINE = {"__unix": "0", "__linux": "4.18", "__glibc": "2.28"}


def prefix_of(plan: Plan, specs: Sequence[str], top: Path, options: str = "") -> Path:
    """The packages of the plan as a channel, and a prefix below `top` with `specs` of it.

    The test is skipped where the plan is not built. Where it has packages for a CUDA, the machine
    is one whose driver serves that.

    Args:
        options: those of `ddlce build` that build the plan, where it is more than a platform's.
    """
    cuda = next((s.recipe.cuda for s in plan.steps.values() if s.recipe.cuda), "")
    if plan.to_build:
        names = ", ".join(step.name for step in plan.to_build)
        platform = f"--platform {plan.subdir}" if plan.subdir != BUILD_PLATFORM else ""
        words = [platform, options or (f"--cuda {cuda}" if cuda else "")]
        pytest.skip(f"not built: {names}; run `ddlce build {' '.join(filter(None, words))}` first")
    store = Store(load_settings().store)
    for step in plan.steps.values():
        for output in step.outputs:
            package = store.package(output.subdir, output.filename)
            link_or_copy(package, top / "channel" / output.subdir / output.filename)
    index_channel(top / "channel")
    channels = {"here": (top / "channel").as_uri()}
    machine = {**MACHINE, **({"__cuda": cuda} if cuda else {})}
    packages = solve(list(specs), channels, plan.subdir, machine, top / "repodata")
    layers = [CacheLayer(top / "pkgs")]
    install(
        InstallRequest(packages, channels, top / "prefix", layers, specs=list(specs), offline=True)
    )
    return top / "prefix"


def run_emulated(
    prefix: Path, subdir: str, program: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """A program of the prefix, on the platform."""
    command = [str(prefix / "bin" / program), *arguments]
    argv = emulated(command, subdir, machine_of(load_settings(), subdir, prefix))
    return run(argv, cwd=prefix)
