"""The checks for ReFrame, under a configuration of a site with a real Slurm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.environment import built
from bench.lab.layout import parse_layout
from bench.lab.network import bring_up
from bench.lab.slurm import Result, Slurm, slurm_in
from integration.lab import needs_slurm
from support.reframe import reframe
from support.run import ok

pytestmark = [pytest.mark.built, pytest.mark.timeout(900), needs_slurm]

CHECKS = Path(__file__).parents[2] / "docs" / "reframe"

SITE = """
site_configuration = {
    "systems": [
        {
            "name": "lab",
            "hostnames": [".*"],
            "partitions": [
                {
                    "name": "batch",
                    "scheduler": "squeue",
                    "launcher": "srun",
                    "access": ["-p", "batch"],
                    "environs": ["builtin"],
                }
            ],
        }
    ]
}
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with bring_up(parse_layout("racks-2x2")) as lab, slurm_in(lab) as found:
        (found.folder / "site.py").write_text(SITE)
        yield found


def run(slurm: Slurm, *words: str | Path) -> Result:
    path = f"PATH={built()}/bin:{slurm.environment['PATH']}"
    folder = slurm.folder / "reframe"
    command: list[str | Path] = [
        "-C",
        slurm.folder / "site.py",
        "-c",
        CHECKS,
        "--prefix",
        folder,
        "-r",
    ]
    return slurm.run("env", path, *reframe(), *command, "-S", "release=", *words, limit=600)


def test_links_and_collectives_over_hosts(slurm: Slurm) -> None:
    """They pass, and a link that was twice as fast in an earlier run is named."""
    names = ["-n", "DdlCeCollectives.*is_whole=True", "-S", "nodes=2"]
    done = ok(run(slurm, *names, "--performance-report"))
    host = slurm.lab.layout.host_mbit
    rates = [float(rate) for rate in re.findall(r"P: h[01]: (\S+) Gbit/s", done.stdout)]
    # No more than the link carries; how much less depends on who else computes here.
    assert [0 < rate <= 1.05e-3 * host for rate in rates] == [True, True], done.stdout[-3000:]

    rate = 2 * host * 1e6 / 8
    earlier = slurm.folder / "report.json"
    earlier.write_text(json.dumps({"links": [{"name": "h1", "kind": "host", "rate": rate}]}))
    done = run(slurm, *names, "-S", f"reference_report={earlier}")
    assert done.returncode == 1
    assert re.search(r"h1: 0\.\d+ Gbit/s, \d+% of 0\.5 \(reference\)", done.stdout)
