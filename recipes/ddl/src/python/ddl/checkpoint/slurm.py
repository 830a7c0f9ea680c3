"""Asks Slurm to start this job again, if nobody else does.

Sources: Slurm's documentation of sbatch (`--requeue`, `--signal`), of scontrol (`requeue`,
`show job`) and of preemption.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ddl.launch.scontrol import KILLED, facts_of, own_job, scontrol


def requeue(environ: Mapping[str, str] = os.environ) -> str:
    """Requeue the job that this process is part of; one rank of the job calls it.

    Returns:
        A sentence about what was done, or why nothing was; "" outside of Slurm.
    """
    job = own_job(environ)
    if not job:
        return ""
    facts, error = facts_of(job)
    reason = error or why_not(dict(facts))
    if reason:
        return f"job {job} was not requeued: {reason}"
    done = scontrol("requeue", job)
    # To start a job again, Slurm first ends it: the command itself may have been quicker to go.
    if isinstance(done, str) and done != KILLED:
        return f"job {job} was not requeued: scontrol requeue: {done}"
    return f"job {job} was requeued"


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
        return (
            "it was submitted with --no-requeue, the cluster says JobRequeue=0, or ddlrun has "
            "ended it, as by -timeout"
        )
    if facts.get("JobState") != "RUNNING":
        return f"Slurm is ending it already (its state is {facts.get('JobState', 'unknown')})"
    return ""
