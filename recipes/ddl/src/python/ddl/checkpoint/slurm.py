"""Asks Slurm to start this job again, if nobody else does.

Sources: Slurm's documentation of sbatch (`--requeue`, `--signal`), of scontrol (`requeue`,
`show job`) and of preemption.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

_LIMIT = 60.0
"""Seconds that a command of Slurm may take."""


def requeue(environ: Mapping[str, str] = os.environ) -> str:
    """Requeue the job that this process is part of; one rank of the job calls it.

    Returns:
        A sentence about what was done, or why nothing was; "" outside of Slurm.
    """
    number = environ.get("SLURM_JOB_ID", "")
    if not number:
        return ""
    facts, error = _facts(number)
    if error:
        return f"job {number} was not requeued: {error}"
    reason = why_not(facts)
    if reason:
        return f"job {number} was not requeued: {reason}"
    done = _run("scontrol", "requeue", number)
    if isinstance(done, str) or done.returncode:
        said = done if isinstance(done, str) else done.stderr.strip()
        return f"job {number} was not requeued: scontrol requeue: {said}"
    return f"job {number} was requeued"


def why_not(facts: Mapping[str, str]) -> str:
    """Why a job with these facts is not to be requeued by its own rank; "" if it is.

    A job that Slurm preempts is running while its partition's GraceTime lasts. Slurm requeues it
    after that, but not if it has ended by itself before: so it must ask. Once Slurm ends the job,
    as by `scontrol requeue`, the job is COMPLETING, and what becomes of it is settled.

    Args:
        facts: of `scontrol show job`.
    """
    if facts.get("BatchFlag") == "0":
        return "it is no batch job"
    if facts.get("Requeue") == "0":
        return "it was submitted with --no-requeue, or the cluster says JobRequeue=0"
    if facts.get("JobState") != "RUNNING":
        return f"Slurm is ending it already (its state is {facts.get('JobState', 'unknown')})"
    return ""


def _facts(number: str) -> tuple[dict[str, str], str]:
    done = _run("scontrol", "show", "job", "--oneliner", number)
    if isinstance(done, str) or done.returncode:
        said = done if isinstance(done, str) else done.stderr.strip()
        return {}, f"scontrol show job: {said}"
    pairs = (word.partition("=") for word in done.stdout.split())
    return {name: value for name, _, value in pairs}, ""


def _run(*command: str) -> subprocess.CompletedProcess[str] | str:
    """The process that has ended, or why there is none."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"no answer within {_LIMIT:g} s"
