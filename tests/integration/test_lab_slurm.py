"""The release in jobs of a real Slurm: eight hosts of the lab in two racks."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import bench.lab
from bench.environment import built
from bench.lab.layout import parse_layout
from bench.lab.namespaces import wait_until
from bench.lab.network import bring_up
from bench.lab.slurm import Slurm, slurm_in
from integration.lab import needs_slurm

pytestmark = [pytest.mark.built, needs_slurm]

MOVE = Path(bench.lab.__file__).parent / "workers" / "move.py"

WHO = """
import ddl, numpy
ddl.init()
rank = ddl.rank()
assert ddl.allreduce(numpy.ones(3))[0] == ddl.size()
print(f"rank {rank} of {ddl.size()} is {ddl.local_rank()} of {ddl.host_name(rank)}", flush=True)
ddl.finalize()
"""

TORCH_WHO = """
import ddl, sys, torch, torch.distributed as dist
dist.init_process_group("ddl")
x = torch.ones(3)
dist.all_reduce(x)
rank, size = dist.get_rank(), dist.get_world_size()
assert x[0] == size
host = ddl.host_name(rank)
sys.stdout.write(f"rank {rank} of {size} is {ddl.local_rank()} of {host}\\n")
dist.destroy_process_group()
"""

SLEEP = """
import ddl, sys, time
ddl.init()
print("asleep", flush=True)
time.sleep(600)
"""

# Three seconds in which it is not stopped, and an allreduce for which one rank comes late.
WORK = """
import ddl, numpy, time
ddl.init()
print("at work", flush=True)
for _ in range(30 if ddl.rank() else 1):
    time.sleep(0.1)
assert ddl.allreduce(numpy.ones(3))[0] == ddl.size()
print("worked", flush=True)
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with bring_up(parse_layout("racks-2x4")) as lab, slurm_in(lab) as found:
        texts = {"who": WHO, "torch_who": TORCH_WHO, "sleep": SLEEP, "work": WORK}
        for name, text in texts.items():
            (found.folder / f"{name}.py").write_text(text)
        yield found


def submit(slurm: Slurm, command: str, *options: str) -> tuple[int, Path]:
    """A batch job of the release's programs; its number, and where its output goes."""
    out = slurm.folder / f"out.{time.monotonic_ns()}"
    script = f"#!/bin/bash\nexport PATH={built()}/bin:$PATH\n{command}\n"
    return slurm.submit(script, "-o", str(out), *options), out


def run(slurm: Slurm, command: str, *options: str) -> str:
    """What a job that ends well has said."""
    number, out = submit(slurm, command, *options)
    facts = slurm.wait(number, 120)
    said = out.read_text()
    assert facts["JobState"] == "COMPLETED", said
    return said


def places(said: str) -> set[str]:
    """The lines of WHO, without what ddlrun puts before them."""
    return {line[line.index("rank ") :] for line in said.splitlines() if "rank " in line}


def test_ddlrun_takes_the_hosts_of_the_reservation(slurm: Slurm) -> None:
    said = run(slurm, "ddlrun python who.py", "-N", "8")
    assert places(said) == {f"rank {n} of 8 is 0 of h{n}" for n in range(8)}


def test_ddlrun_puts_ranks_on_each_host(slurm: Slurm) -> None:
    said = run(slurm, "ddlrun -accelerators 2 python who.py", "-N", "2", "-w", "h2,h5")
    assert places(said) == {
        f"rank {2 * n + local} of 4 is {local} of {host}"
        for n, host in enumerate(("h2", "h5"))
        for local in range(2)
    }


def test_srun_starts_ranks_by_itself(slurm: Slurm) -> None:
    said = run(slurm, "srun --mpi=pmi2 python who.py", "-N", "4", "--ntasks-per-node", "2")
    assert places(said) == {
        f"rank {2 * host + local} of 8 is {local} of h{host}"
        for host in range(4)
        for local in range(2)
    }


@pytest.mark.parametrize("start", ["ddlrun", "srun --mpi=pmi2"])
def test_the_racks_of_slurm_are_known(slurm: Slurm, start: str) -> None:
    """Of eight hosts' blocks, each rack gets the half that it has not: once over its uplink."""
    nbytes, lab = 2 << 20, slurm.lab
    run(slurm, f"{start} python {MOVE} allgather {nbytes} {lab.counters} {lab.folder}", "-N", "8")
    assert 0.5 <= lab.crossed() / (3 * nbytes) <= 0.55


def test_the_smoke_suite_runs_over_the_job(slurm: Slurm) -> None:
    said = run(slurm, "ddlce-smoke --quick --parts collectives", "-N", "8")
    assert "on the hosts of this job of Slurm" in said
    assert "the hosts ... passed, 9 cases" in said  # one each, and the run
    assert said.splitlines()[-1] == "PASSED"


def test_slow_hosts_and_uplinks_are_named(slurm: Slurm) -> None:
    """Two racks cannot say whose uplink is slow: an earlier run can."""
    lab, folder = slurm.lab, slurm.folder / "good"
    links = "ddlce-smoke --parts links"
    run(slurm, f"{links} --report {folder}", "-N", "8")
    before = {
        row["name"]: row["rate"]
        for row in json.loads((folder / "report.json").read_text())["links"]
    }
    assert len(before) == 10  # eight hosts, two racks
    uplink = lab.layout.uplink_mbit
    assert uplink
    lab.set_rate("h3", lab.layout.host_mbit / 2)
    lab.set_rate("rack1", uplink / 2)
    try:
        number, out = submit(slurm, f"{links} --reference {folder}/report.json", "-N", "8")
        facts = slurm.wait(number, 120)
    finally:
        lab.set_rate("h3", lab.layout.host_mbit)
        lab.set_rate("rack1", uplink)
    said = out.read_text()
    assert facts["JobState"] == "FAILED", said
    failed = {line.split(": ")[0] for line in said.splitlines() if "FAILED " in line}
    assert "  FAILED h3" in failed, said
    assert "  FAILED uplink of h4,h5,h6,h7" in failed, said
    assert not {f"  FAILED h{n}" for n in (0, 1, 2, 4, 5, 6, 7)} & failed, said


def test_a_host_that_is_not_well_is_named_first(slurm: Slurm) -> None:
    full = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
    on_host([slurm.lab.launcher, "h2", full])
    try:
        number, out = submit(slurm, "ddlce-smoke --quick", "-N", "3", "-w", "h[1-3]")
        facts = slurm.wait(number, 300)
    finally:
        on_host([slurm.lab.launcher, "h2", "umount /dev/shm"])
    said = out.read_text()
    assert facts["JobState"] == "FAILED", said
    failed = next(line for line in said.splitlines() if "FAILED" in line)
    assert "h2: 1 MiB are free for /dev/shm" in failed, said
    assert "versions" not in said  # nothing else was begun


def test_a_host_without_the_release_ends_the_job_at_once(slurm: Slurm) -> None:
    prefix = built().resolve()
    on_host([slurm.lab.launcher, "h2", f"mount -t tmpfs tmpfs {prefix}"])
    try:
        number, out = submit(slurm, "ddlrun python who.py", "-N", "3", "-w", "h[1-3]")
        facts = slurm.wait(number, 60)
    finally:
        on_host([slurm.lab.launcher, "h2", f"umount {prefix}"])
    said = out.read_text()
    assert facts["JobState"] == "FAILED", said
    assert "ddlrun: could not start rank 1 on h2:" in said
    # Slurm's word on the missing program comes before or after ddlrun has ended.
    assert "Every host of the job needs this environment" in said
    assert wait_until(lambda: set(slurm.states().values()) == {"idle"}, 60, 0.2), "idle hosts"


def test_srun_without_mpi_is_an_error(slurm: Slurm) -> None:
    number, out = submit(slurm, "srun --mpi=none python who.py", "-N", "2")
    assert slurm.wait(number, 60)["JobState"] == "FAILED"
    assert "srun started 2 processes (SLURM_STEP_NUM_TASKS=2; " in out.read_text()
    assert "start the program with `srun --mpi=pmi2`" in out.read_text()


@pytest.mark.parametrize(
    "start",
    [
        "srun --mpi=pmi2 python",
        "srun torchrun --nnodes 4 --nproc-per-node 2 --rdzv-backend c10d --rdzv-id 7 "
        "--rdzv-endpoint h1:29517",
    ],
)
def test_torch_s_groups_under_other_launchers(slurm: Slurm, start: str) -> None:
    tasks = "2" if "pmi2" in start else "1"
    said = run(
        slurm, f"{start} torch_who.py", "-N", "4", "-w", "h[1-4]", "--ntasks-per-node", tasks
    )
    found = re.findall(r"rank (\d) of 8 is (\d) of (h\d)", said)
    assert sorted(rank for rank, _, _ in found) == [str(n) for n in range(8)]
    assert {(local, host) for _, local, host in found} == {
        (str(local), f"h{host}") for local in range(2) for host in range(1, 5)
    }


def test_a_cancelled_job_leaves_nothing(slurm: Slurm) -> None:
    number, out = submit(slurm, "ddlrun python sleep.py", "-N", "4")
    assert wait_until(lambda: out.exists() and out.read_text().count("asleep") == 4, 60, 0.2), (
        "four ranks"
    )
    assert programs("sleep.py")
    slurm.run("scancel", str(number))
    assert slurm.wait(number, 60)["JobState"] == "CANCELLED"
    assert wait_until(lambda: not programs("sleep.py"), 60, 0.2), "the ranks' end"
    assert wait_until(lambda: set(slurm.states().values()) == {"idle"}, 60, 0.2), "idle hosts"


def test_a_suspended_job_goes_on(slurm: Slurm) -> None:
    """For longer than the timeouts, of which nothing is over then."""
    command = "ddlrun -timeout 20 -x DDL_TIMEOUT=8 python work.py"
    number, out = submit(slurm, command, "-N", "4")
    for _ in range(2):
        assert wait_until(lambda: out.exists() and out.read_text().count("at work") == 4, 60, 0.1)
        assert slurm.run("scontrol", "suspend", str(number)).returncode == 0
        time.sleep(12)
        assert slurm.run("scontrol", "resume", str(number)).returncode == 0
        time.sleep(0.3)
    facts = slurm.wait(number, 60)
    said = out.read_text()
    assert facts["JobState"] == "COMPLETED", said
    assert said.count("worked") == 4
    assert "Error" not in said


def on_host(command: list[str | Path]) -> None:
    """Change something on a host of the lab."""
    subprocess.run([str(word) for word in command], check=True)


def programs(word: str) -> list[str]:
    """The commands of this machine that have the word as one of their own words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        if word in words:
            found.append(" ".join(words))
    return found
