"""How many GPUs each host of a job has for it, where nobody has said how many ranks it takes.

The batch system's word counts, then CUDA_VISIBLE_DEVICES and the devices of the host itself, which
is asked where it is another. Sources: scontrol(1) of Slurm; "GPU_FILE" in Torque's documentation of
exported variables.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from ddl.launch.bind import own_gpus
from ddl.launch.hosts import is_local
from ddl.launch.scontrol import gpus_of_job

VISIBLE = "CUDA_VISIBLE_DEVICES"
SECONDS = 20.0  # for Slurm's answer
Ask = Callable[[list[str]], list[int]]


def gpus_of_hosts(
    hosts: list[str],
    environ: Mapping[str, str],
    exports: Mapping[str, str],
    ask: Ask | None = None,
) -> list[int]:
    """The GPUs of each of these hosts.

    Args:
        hosts: as the user or the batch system names them.
        environ: ddlrun's variables, the batch system's among them.
        exports: the variables that the user sets for all ranks.
        ask: tells the GPUs of other hosts; None: they are taken to be as this one.

    Raises:
        LaunchError: a host has not answered.
    """
    if VISIBLE in exports:
        return [own_gpus(exports[VISIBLE])] * len(hosts)
    here = own_gpus(environ.get(VISIBLE))
    if VISIBLE in environ and all(map(is_local, hosts)):
        return [here] * len(hosts)  # ranks are forked, and see what ddlrun sees
    said = _gpu_file(environ) or gpus_of_job(environ, SECONDS)
    if said and not any(said.values()):  # a Slurm that counts no GPUs
        return [here] * len(hosts)
    others = [host for host in hosts if host not in said and not is_local(host)]
    if ask and others:
        said |= zip(others, ask(others), strict=True)
    return [said.get(host, here) for host in hosts]


def _gpu_file(environ: Mapping[str, str]) -> dict[str, int]:
    """Torque's file, with HOST-gpuN a line; {} without it."""
    path = environ.get("PBS_GPUFILE")
    try:
        lines = Path(path).read_text(encoding="utf-8").split() if path else []
    except (OSError, UnicodeDecodeError):
        return {}
    hosts = [line.rpartition("-gpu")[0] for line in lines]
    return {host: hosts.count(host) for host in hosts}
