"""A prefix for another platform, of what `ddlce build` left in the store, run under emulation."""

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
from ddlce.platforms import PLATFORMS
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


def prefix_of(plan: Plan, specs: Sequence[str], top: Path) -> Path:
    """The packages of the plan as a channel, and a prefix below `top` with `specs` of it.

    The test is skipped where the plan is not built.
    """
    if plan.to_build:
        names = ", ".join(step.name for step in plan.to_build)
        cuda = next((f" --cuda {s.recipe.cuda}" for s in plan.to_build if s.recipe.cuda), "")
        pytest.skip(f"not built: {names}; run `ddlce build --platform {plan.subdir}{cuda}` first")
    store = Store(load_settings().store)
    for step in plan.steps.values():
        for output in step.outputs:
            package = store.package(output.subdir, output.filename)
            link_or_copy(package, top / "channel" / output.subdir / output.filename)
    index_channel(top / "channel")
    channels = {"here": (top / "channel").as_uri()}
    packages = solve(list(specs), channels, plan.subdir, MACHINE, top / "repodata")
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
