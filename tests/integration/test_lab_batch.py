"""Batch scripts of `ddlrun -script slurm` in a real Slurm: eight hosts of the lab in two racks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.environment import built
from bench.lab.layout import parse_layout
from bench.lab.network import bring_up
from bench.lab.slurm import Result, Slurm, slurm_in
from ddlce.settings import load_settings
from integration.lab import needs_slurm

pytestmark = [pytest.mark.built, needs_slurm]

DDLRUN: list[str | Path] = [built() / "bin" / "ddlrun"]

WHO = """
import os, sys, ddl
ddl.init()
rank = ddl.rank()
release = "-" if sys.argv[1:] else sys.prefix
where = f"on {ddl.host_name(rank)} of {release}"
print(f"rank {rank} of {ddl.size()} {where}", *sys.argv[1:], flush=True)
ddl.finalize()
"""

# Ends well by the signal alone.
SAVE = """
import signal, sys, time
def save(number, frame):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
print("computes", flush=True)
time.sleep(300)
sys.exit(1)
"""

# The first run asks for another one, as a program does that has saved its state.
AGAIN = """
import os, subprocess, sys, time
count = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
print(f"run {count}", flush=True)
if count == 0:
    subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True)
    time.sleep(300)
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with bring_up(parse_layout("racks-2x4")) as lab, slurm_in(lab) as found:
        for name, text in (("who.py", WHO), ("save.py", SAVE), ("again.py", AGAIN)):
            (found.folder / name).write_text(text)
        yield found


def ddlrun(slurm: Slurm, *words: str, **variables: str) -> Result:
    """Runs the release's ddlrun on the first host, in the folder that all hosts see."""
    pairs = [f"{name}={value}" for name, value in variables.items()]
    return slurm.run("env", *pairs, *DDLRUN, "-script", "slurm", *words)


def output(slurm: Slurm, number: int, limit: float = 120) -> str:
    """The output of a job that ends well."""
    facts = slurm.wait(number, limit)
    said = Path(facts["StdOut"]).read_text()
    assert facts["JobState"] == "COMPLETED", said
    return said


def submitted(done: Result) -> int:
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().isdigit(), done.stdout
    return int(done.stdout)


def test_a_submitted_script_runs_over_its_hosts_with_the_module(slurm: Slurm) -> None:
    root = load_settings().root
    modules = root / "modulefiles/lua"
    words = ["-submit", "-N", "3", "-accelerators", "2", "python", "who.py"]
    said = output(slurm, submitted(ddlrun(slurm, *words, MODULEPATH=str(modules))))
    ranks = sorted(line[line.index("rank ") :] for line in said.splitlines() if "rank " in line)
    text = next((modules / "ddl-ce").glob("[!.]*.lua")).read_text()
    release = next(iter(set(re.findall(rf"{re.escape(str(root))}/envs/ddl-ce/[\w.-]+", text))))
    assert ranks == [f"rank {n} of 6 on h{n // 2} of {release}" for n in range(6)], said


def test_a_written_script_takes_words_as_they_are(slurm: Slurm) -> None:
    word = "it's $HOME `x`\n#SBATCH --nodes=7"
    words = ["-output", "job.sh", "-module", "none", "-N", "2", "-np", "4", "-name", "written"]
    done = ddlrun(slurm, *words, "python", "who.py", word)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    asked = slurm.run("sbatch", "--parsable", "job.sh")
    said = output(slurm, submitted(asked))
    assert slurm.job(int(asked.stdout))["JobName"] == "written"
    assert slurm.job(int(asked.stdout))["NumNodes"] == "2"
    assert said.count("it's $HOME `x`") == 4, said
    refused = ddlrun(slurm, *words, "python", "who.py")
    assert refused.returncode == 2
    assert "-output job.sh: the file exists" in refused.stderr


@pytest.mark.parametrize("hosts", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_all_ranks_get_the_signal_before_the_end(slurm: Slurm, hosts: str) -> None:
    words = ["-submit", "-module", "none", "-N", hosts, "-accelerators", "2"]
    words += ["-time", "2", "-signal", "45", "python", "save.py"]
    said = output(slurm, submitted(ddlrun(slurm, *words)), 150)
    assert said.count("computes") == 2 * int(hosts), said
    assert said.count("saved") == 2 * int(hosts), said


@pytest.mark.slow
def test_a_job_can_start_again_and_adds_to_its_output(slurm: Slurm) -> None:
    words = ["-submit", "-module", "none", "-N", "1", "python", "again.py"]
    number = submitted(ddlrun(slurm, *words))
    slurm.until(lambda: slurm.job(number).get("Restarts") == "1", 60, "the requeued job")
    slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now")
    said = output(slurm, number, 300)
    assert said.index("run 0") < said.index("run 1"), said


def test_a_job_that_slurm_refuses(slurm: Slurm) -> None:
    done = ddlrun(slurm, "-submit", "-N", "1", "-queue", "nowhere", "python", "who.py")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "sbatch refuses the job (exit status 1): " in done.stderr
    assert "invalid partition specified: nowhere" in done.stderr
    assert "Traceback" not in done.stderr
