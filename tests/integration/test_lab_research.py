"""Packages of research on two hosts of a real Slurm, whose variables they all read themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.lab.layout import parse_layout
from bench.lab.network import bring_up
from bench.lab.slurm import Slurm, slurm_in
from integration.lab import needs_slurm
from support.releases import installed
from support.run import run

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(900), needs_slurm]

SAME = """
import sys, numpy as np
from ddl_ce_smoke.research import difference
print(difference(*(np.load(name) for name in sys.argv[1:])) or "the same")
"""


@pytest.fixture(scope="module")
def release() -> Path:
    return installed("ddl-ce-full", "make full")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with bring_up(parse_layout("racks-2x2")) as lab, slurm_in(lab) as found:
        yield found


@pytest.mark.parametrize(
    "program", ["lightning_module", "transformer", "boosted_trees", "boosted_leaves"]
)
def test_two_hosts_have_one_rank_s_numbers(slurm: Slurm, release: Path, program: str) -> None:
    numbers = []
    for hosts in (1, 2):
        out, target = (slurm.folder / f"{program}.{hosts}{end}" for end in (".out", ".npy"))
        script = (
            f"#!/bin/bash\nexport PATH={release}/bin:$PATH OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1\n"
            f"export HF_HOME=$(mktemp -d)\n"
            f"ddlrun -accelerators 1 python -P -m ddl_ce_smoke.research.{program} {target}\n"
        )
        job = slurm.submit(script, "-N", str(hosts), "--ntasks-per-node=1", "-o", str(out))
        assert slurm.wait(job, 400)["JobState"] == "COMPLETED", out.read_text()
        numbers.append(str(target))
    done = run([str(release / "bin/python"), "-c", SAME, *numbers])
    assert done.stdout == "the same\n", done.stdout + done.stderr
