"""Asks every host of a job for its place, as the library's ranks will find it there."""

import json
import subprocess
from dataclasses import replace

from ddl.launch.errors import LaunchError
from ddl.launch.hosts import is_local
from ddl.launch.hydra import HydraLauncher
from ddl.launch.layout import Job
from ddl.launch.own import own_python

SECONDS = 60  # for all hosts together
ASK = "import json; from ddl import _core; print(json.dumps(_core.own_place()))"


def ask_places(job: Job) -> list[str]:
    """The place of each host, "" where nobody tells it; LaunchError if not all have answered.

    One rank is started on each host, by the launcher of the job's own ranks.
    """
    if len(job.hosts) == 1 and is_local(job.hosts[0]):
        return [""]  # a single host has no place
    launcher = HydraLauncher()
    asked = replace(
        job,
        command=tuple(own_python("-c", ASK)),
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
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(f"the hosts have not answered within {SECONDS} s") from None
    lines: dict[int, bytes] = {}
    for rank, piece in launcher.demultiplexer().feed(done.stdout):
        if rank is not None:
            lines[rank] = lines.get(rank, b"") + piece
    places: list[str] = []
    for rank, host in enumerate(asked.hosts):
        try:
            places.append(json.loads(lines.get(rank, b"").decode()))
        except ValueError:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            raise LaunchError(f"{host} has not answered: {(words or ['no reason'])[-1]}") from None
    return places
