"""Asks Slurm about the job that this process is part of, by its `scontrol`.

Source: scontrol(1) of Slurm, `show job`; sbatch(1), "Job arrays": a task k of the array N is N_k.
"""

import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress

from ddl.launch.errors import LaunchError
from ddl.launch.hosts import parse_hosts
from ddl.launch.own import find_program

LIMIT = 60.0
"""Seconds that a command may take."""

# As "gpu:tesla:2(IDX:0,3)", "gpu:2(IDX:0-1),fpga(CNT:1)".
_GRES = re.compile(r"(?:^|,)([A-Za-z][\w-]*)(?::[^:(,]+)??(?::(\d+)(?=[(,]|$)|\(CNT:(\d+)\))")

KILLED = "it was killed"
"""Why a command has not ended well: Slurm, too, kills it, as by the end of its job."""

Facts = list[tuple[str, str]]


def own_job(environ: Mapping[str, str]) -> str:
    """The job's name for scontrol: a task's, of an array; "" outside of Slurm.

    The number of an array is that of one of its tasks, too, and would name them all.
    """
    array, task = (environ.get(f"SLURM_ARRAY_{name}", "") for name in ("JOB_ID", "TASK_ID"))
    return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID", "")


def facts_of(job: str, *flags: str, limit: float = LIMIT) -> tuple[Facts, str]:
    """What `scontrol show job` says, as ("JobState", "RUNNING") and so on; or an error's words."""
    done = scontrol("show", "job", *flags, "--oneliner", job, limit=limit)
    if isinstance(done, str):
        return [], f"scontrol show job: {done}"
    first = next(iter(done.stdout.splitlines()), "")  # of a heterogeneous job, its leader
    pairs = (word.partition("=") for word in first.split())
    return [(name, value) for name, _, value in pairs], ""


def gres_per_host(environ: Mapping[str, str], limit: float) -> dict[str, int]:
    """The job's generic resources by name: how many it has on each host, on that with the fewest.

    {} outside of Slurm, or if it does not tell.
    """
    hosts = [*_gres_of_job(environ, limit).values()]
    names = dict.fromkeys(name for host in hosts for name in host)
    fewest = {name: min(host.get(name, 0) for host in hosts) for name in names}
    return {name: count for name, count in fewest.items() if count}


def gpus_of_job(environ: Mapping[str, str], limit: float) -> dict[str, int]:
    """How many GPUs the job has on each host; {} outside of Slurm, or if it does not tell."""
    return {host: found.get("gpu", 0) for host, found in _gres_of_job(environ, limit).items()}


def _gres_of_job(environ: Mapping[str, str], limit: float) -> dict[str, dict[str, int]]:
    """The generic resources of each host by their names: of all types together."""
    job = own_job(environ)
    facts, _ = facts_of(job, "--details", limit=limit) if job else ([], "")
    counts: dict[str, dict[str, int]] = {}
    hosts = ""
    # "Nodes=h[0-1] CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0-1)", once for all hosts that are alike.
    for name, value in facts:
        if name == "Nodes":
            hosts = value
        elif name == "GRES":
            found: dict[str, int] = {}
            for resource, count, alone in _GRES.findall(value):
                found[resource] = found.get(resource, 0) + int(count or alone)
            with suppress(LaunchError):  # a list of another form
                counts |= {host.name: found for host in parse_hosts(hosts, "scontrol")}
    return counts


def forbid_requeue(environ: Mapping[str, str], limit: float) -> bool:
    """Has Slurm start this batch job no more, however it ends; whether that is new."""
    job = own_job(environ)
    facts = dict(facts_of(job, limit=limit)[0]) if job else {}
    if facts.get("BatchFlag") != "1" or facts.get("Requeue") != "1":
        return False
    return not isinstance(scontrol("update", f"JobId={job}", "Requeue=0", limit=limit), str)


def allow_requeue(environ: Mapping[str, str], limit: float) -> None:
    """Undoes `forbid_requeue`: the job's script may go on."""
    scontrol("update", f"JobId={own_job(environ)}", "Requeue=1", limit=limit)


def scontrol(*words: str, limit: float = LIMIT) -> subprocess.CompletedProcess[str] | str:
    """The process, which has ended well; or why there is none."""
    program = find_program("scontrol")
    if program is None:
        return "scontrol is not on PATH"
    try:
        done = subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except OSError as error:
        return f"scontrol: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"no answer within {limit:g} s"
    if done.returncode < 0:
        return KILLED
    return done.stderr.strip() if done.returncode else done
