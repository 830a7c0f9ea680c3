"""Packages that `ddlce build` left in the store, unpacked: nothing is solved, nothing tested."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest
from conda_package_streaming.extract import extract

from ddlce.engine.render import Output
from ddlce.plan import make_plan
from ddlce.settings import load_settings
from ddlce.store import Store


@functools.cache
def _outputs(platform: str) -> dict[tuple[str, str], Output]:
    steps = make_plan(load_settings(), platform).steps.values()
    return {(o.subdir, o.name): o for step in steps for o in step.outputs}


def unpack_built(platform: str, folder: Path, *names: str, subdir: str = "") -> Path:
    """The folder with the contents of packages of the platform's plan, one into the other.

    The test is skipped where one is not built.

    Args:
        names: of the packages.
        subdir: theirs, where it is not the platform; what is noarch is found by its name.
    """
    store, known = Store(load_settings().store), _outputs(platform)
    for name in names:
        own, noarch = (subdir or platform, name), ("noarch", name)
        output = known[own if own in known else noarch]
        if not store.has(output.subdir, output.filename):
            pytest.skip(f"{name} is not built: make {platform.removeprefix('linux-')}")
        extract(str(store.package(output.subdir, output.filename)), str(folder))
        shutil.rmtree(folder / "info")
    return folder
