"""Jobs of a real Slurm that start their ranks again and again, after a rank has ended early.

Each start meets anew, whatever earlier ranks of the same job have left: no start may hang.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bench.environment import built
from bench.lab.layout import parse_layout
from bench.lab.network import bring_up
from bench.lab.slurm import Slurm, slurm_in
from integration.lab import needs_slurm

pytestmark = [pytest.mark.built, needs_slurm, pytest.mark.timeout(9000)]

TIMES = [20, pytest.param(200, marks=pytest.mark.slow)]
LIMIT = 60  # seconds of each start: one that hangs ends by itself, and is told from the others

# A rank ends by itself, in each start but the last and another one each time.
FAILS = """
import os, sys
import ddl, numpy
start, last = int(sys.argv[1]), int(sys.argv[2])
ddl.init()
assert ddl.allreduce(numpy.ones(1000))[0] == ddl.size() == 2
if ddl.rank() == start % 2 and start < last:
    os._exit(7)
ddl.allreduce(numpy.ones(1000))
if ddl.rank() == 0:
    print("came to the end at start", start, flush=True)
ddl.finalize()
"""

STEPS = """#!/bin/bash
export PATH={prefix}/bin:$PATH DDL_TIMEOUT={limit}
for start in $(seq 0 {last}); do
  timeout {limit} srun --mpi=pmi2 -K -Q python fails.py $start {last}
  echo start $start ended with $?
done
"""

# The last word of a start is its request for the next.
REQUEUES = """#!/bin/bash
export PATH={prefix}/bin:$PATH
start=${{SLURM_RESTART_COUNT:-0}}
ddlrun -timeout {limit} python fails.py $start {last}
echo start $start ended with $?
if [ $start -lt {last} ]; then scontrol requeue $SLURM_JOB_ID; sleep 600; fi
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with bring_up(parse_layout("racks-1x2")) as lab, slurm_in(lab) as found:
        (found.folder / "fails.py").write_text(FAILS)
        yield found


def check(said: str, last: int, *failures: int) -> None:
    """Each start has ended once and as it should, and the last one well: none at its limit."""
    words = [line.split() for line in said.splitlines() if " ended with " in line]
    ends = [(int(line[1]), int(line[-1])) for line in words if line[0] == "start"]
    assert [start for start, _ in ends] == [*range(last + 1)], said[-4000:]
    assert all(code in failures for _, code in ends[:-1]), said[-4000:]
    assert ends[-1] == (last, 0), said[-4000:]
    assert said.count("came to the end") == 1


@pytest.mark.parametrize("times", TIMES)
def test_srun_starts_step_after_step(slurm: Slurm, times: int) -> None:
    out = slurm.folder / f"steps-{times}.out"
    script = STEPS.format(prefix=built(), limit=LIMIT, last=times)
    number = slurm.submit(script, "-N2", "--ntasks-per-node=1", "-o", str(out))
    facts = slurm.wait(number, 60 + LIMIT * times)
    said = out.read_text()
    assert facts["JobState"] == "COMPLETED", said[-4000:]
    check(said, times, 7, 143)  # srun has the higher of the rank's and that of the one it ended


@pytest.mark.parametrize("times", TIMES)
def test_a_job_is_requeued_again_and_again(slurm: Slurm, times: int) -> None:
    out = slurm.folder / f"requeues-{times}.out"
    script = REQUEUES.format(prefix=built(), limit=LIMIT, last=times)
    options = ("-N2", "--ntasks-per-node=1", "--requeue", "--open-mode=append", "-o", str(out))
    number = slurm.submit(script, *options)

    def has_ended() -> bool:
        facts = slurm.job(number)
        if facts.get("JobState") == "PENDING" and facts.get("Restarts") != "0":
            # A slurmd does not launch a job in the second in which it has ended it. No sleep before
            # the request: the job may have run and ended once more meanwhile.
            requeued = time.mktime(time.strptime(facts["SubmitTime"], "%Y-%m-%dT%H:%M:%S"))
            if time.time() > requeued + 2:
                slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now")
        return facts.get("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")

    slurm.until(has_ended, 60 + LIMIT * times, "the end of the last start")
    assert slurm.job(number)["Restarts"] == str(times)
    check(out.read_text(), times, 7)
