"""Asks every host of a job: for its place, as the library's ranks will find it there; for its GPUs.

One rank is started on each host, by the launcher of the job's own ranks: so it sees what they see.
"""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from ddl.launch.errors import HostError
from ddl.launch.hosts import is_local
from ddl.launch.hydra import HydraLauncher
from ddl.launch.layout import Job, make_job
from ddl.launch.options import Options
from ddl.launch.own import own_python
from ddl.launch.run import die_with_parent

SECONDS = 60  # for all hosts together
PLACE = "import json; from ddl import _core; print(json.dumps(_core.own_place()))"
GPUS = (
    "import os; from ddl.launch.bind import own_gpus; "
    "print(own_gpus(os.environ.get('CUDA_VISIBLE_DEVICES')))"
)
HINT = "Where -np or -accelerators says how many ranks there are, no host is asked."
T = TypeVar("T", str, int)


def ask_places(job: Job, options: Options) -> list[str]:
    """The place of each host of the options' job, "" where nobody tells it.

    Raises:
        HostError: not all have answered.
    """
    if len(job.hosts) == 1 and is_local(job.hosts[0]):
        return [""]  # a single host has no place
    return _ask(job, HydraLauncher(options), PLACE, str)


def ask_gpus(hosts: list[str], options: Options, environ: Mapping[str, str]) -> list[int]:
    """How many GPUs a program of this job may use on each of these hosts.

    Args:
        hosts: as the user or the batch system names them.
        options: of the job.
        environ: ddlrun's variables, the batch system's among them.

    Raises:
        HostError: not all have answered.
    """
    asking = Options(
        command=own_python(),
        host=",".join(hosts),
        accelerators=1,
        mpi_arguments=options.mpi_arguments,
        tcp=options.tcp,
    )
    return _ask(make_job(asking, environ, []), HydraLauncher(options), GPUS, int)


def _ask(job: Job, launcher: HydraLauncher, code: str, kind: Callable[..., T]) -> list[T]:
    """The answer of each host: a line of JSON that this Python code prints there."""
    asked = replace(
        job,
        command=tuple(own_python("-c", code)),
        placement=tuple(range(len(job.hosts))),
        chief=None,
    )
    launcher.check(asked)
    try:
        done = subprocess.run(
            launcher.command(asked),
            env=launcher.environment(asked),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            preexec_fn=die_with_parent,
        )
    except subprocess.TimeoutExpired as error:
        reason = _last_words(error.stderr)
        raise HostError(f"no answer of the hosts within {SECONDS} s: {reason}", HINT) from None
    lines: dict[int, bytes] = {}
    for rank, piece in launcher.demultiplexer().feed(done.stdout):
        if rank is not None:
            lines[rank] = lines.get(rank, b"") + piece
    answers: list[T] = []
    for rank, host in enumerate(asked.hosts):
        try:
            answers.append(kind(json.loads(lines.get(rank, b"").decode())))
        except ValueError:
            reason = _last_words(done.stderr)
            raise HostError(f"{host} has not answered: {reason}", HINT) from None
    return answers


def _last_words(stderr: bytes | None) -> str:
    words = (stderr or b"").decode(errors="replace").strip().splitlines()
    return (words or ["no reason"])[-1]
