"""The hosts of a job of Flux, by its own commands.

A script of `flux batch` is the first program of a Flux of its own, which has all of the job's
hosts: `flux getattr hostlist`. A program of `flux run` is a task of the Flux around it, and asks
that for the job's: `flux jobs`. Sources: flux-environment(7), flux-getattr(1), flux-jobs(1),
flux-broker-attributes(7).
"""

import subprocess
from collections.abc import Mapping

from ddl.launch.errors import LaunchError
from ddl.launch.hosts import Host, parse_hosts
from ddl.launch.own import find_program

SECONDS = 30  # for Flux's answer


def flux_hosts(environ: Mapping[str, str]) -> list[Host]:
    """The job's hosts. How many ranks they take is for the GPUs and the command line to say.

    Raises:
        LaunchError: Flux does not tell them, or the job has another number of hosts.
    """
    job = environ.get("FLUX_JOB_ID", "")
    words = ["jobs", "-n", "-o", "{nodelist}", job] if job else ["getattr", "hostlist"]
    said = _flux(words)
    hosts = [Host(host.name) for host in parse_hosts(said, f"flux {words[0]}")]
    number = environ.get("FLUX_JOB_NNODES", "") if job else ""
    if number and number != str(len(hosts)):
        raise LaunchError(
            f"FLUX_JOB_NNODES is {number}, but flux {words[0]} names {said}",
            "Name the hosts: -H h1,h2.",
        )
    return hosts


def _flux(words: list[str]) -> str:
    """What a command of Flux prints."""
    name = f"flux {words[0]}"
    program = find_program("flux")
    hint = "Name the hosts: -H h1,h2."
    if program is None:
        raise LaunchError("this is a job of Flux, but flux is not on PATH", hint)
    try:
        done = subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(f"{name} has not answered within {SECONDS} s", hint) from None
    except OSError as error:
        raise LaunchError(f"cannot run {program}: {error.strerror}", hint) from None
    if done.returncode or not done.stdout.strip():
        lines = done.stderr.strip().splitlines()
        raise LaunchError(f"{name} names no hosts: {lines[-1] if lines else 'no reason'}", hint)
    return done.stdout.strip()
