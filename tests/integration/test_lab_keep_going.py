"""ddlrun -keep_going between hosts: one of them is lost, with all its ranks and their launcher."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.environment import built
from bench.lab.layout import parse_layout
from bench.lab.namespaces import NAMESPACES, kill_all
from bench.lab.network import Lab, bring_up
from bench.lab.run import run_on
from bench.lab.slurm import slurm_in
from integration.lab import needs_lab, needs_slurm

pytestmark = [pytest.mark.built, needs_lab, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("programs") / "keeps_going.py"
MAY_LAST = 300.0
LOST = r"ddlrun: lost rank (\d) on h1, which has gone with its host after .*: (.*)\."
GOES_ON = "the job goes on"


def kill(lab: Lab, host: str) -> None:
    """All that runs on a host ends at once; only its network is still there."""
    kill_all([NAMESPACES / f"ddl{host}"], {process.pid for process in lab.keepers.values()})


def when_summed(lab: Lab, lose: Callable[[Lab, str], None], host: str) -> threading.Thread:
    """Lose a host while its ranks and the others' reduce."""

    def wait() -> None:
        end = time.monotonic() + MAY_LAST
        while not (lab.folder / "summed").exists() and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(1)
        lose(lab, host)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


silent = pytest.param(Lab.cut, marks=pytest.mark.slow)  # it takes longer


@pytest.mark.parametrize("lose", [kill, silent])
def test_the_others_go_on_without_a_lost_host(lose: Callable[[Lab, str], None]) -> None:
    """A cut cable is noticed by companions within 10 s, and by the launcher within 30 s."""
    with bring_up(parse_layout("flat-3")) as lab:
        command = [
            *(str(built() / "bin" / "ddlrun"), "-keep_going", "-min", "2", "-H", "h0:1,h1:2,h2:1"),
            *("python", str(PROGRAM), "0,3", str(lab.folder / "summed"), "0"),
        ]
        path = f"{lab.tools}:{built()}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        thread = when_summed(lab, lose, "h1")
        outcome = run_on(
            lab, "h0", command, {"PATH": path, "OMP_NUM_THREADS": "1"}, MAY_LAST, grace=60
        )
        thread.join()
        assert outcome.code == 0, outcome
        assert outcome.orphans == 0
        assert sorted(outcome.stdout.splitlines()) == [
            *("[0@h0] late 5", "[0@h0] sum 10", "[0@h0] then 5"),
            *("[1@h1] sum 10", "[2@h1] sum 10"),
            *("[3@h2] late 5", "[3@h2] sum 10", "[3@h2] then 5"),
        ]
        assert re.findall(LOST, outcome.stderr) == [("1", GOES_ON), ("2", GOES_ON)]
        assert [name for name in lab.shared_memory() if not name.startswith("h1/")] == []


@pytest.mark.slow
@needs_slurm
@pytest.mark.parametrize("lose", [kill, Lab.cut])
def test_the_others_go_on_when_slurm_has_lost_a_host(lose: Callable[[Lab, str], None]) -> None:
    """Slurm takes it for down after 20 s, and would end the job and its step."""
    with bring_up(parse_layout("flat-3")) as lab, slurm_in(lab) as slurm:
        out = slurm.folder / "out"
        words = f"ddlrun -keep_going -min 2 python {PROGRAM} 0,2 {lab.folder}/summed 45"
        script = f"#!/bin/bash\nexport PATH={built()}/bin:$PATH OMP_NUM_THREADS=1\n{words}\n"
        options = ["--no-kill", "-N", "3", "--ntasks-per-node", "1", "-o", str(out)]
        number = slurm.submit(script, *options)
        thread = when_summed(lab, lose, "h1")
        slurm.until(lambda: slurm.states()["h1"].startswith("down"), MAY_LAST, "h1 is down")
        thread.join()
        facts = slurm.wait(number, MAY_LAST)
        said = out.read_text()
        assert facts["JobState"] == "COMPLETED", said
        assert re.findall(LOST, said) == [("1", GOES_ON)]
        assert sorted(re.findall(r"\[(\d)@h\d\] late (\d)", said)) == [("0", "4"), ("2", "4")]
