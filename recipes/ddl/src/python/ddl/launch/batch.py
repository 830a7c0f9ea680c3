"""The hosts that a batch system reserved for us, as its variables of the environment tell.

LSF: LSB_MCPU_HOSTS, LSB_DJOB_HOSTFILE (bsub's documentation). Slurm: SLURM_JOB_NODELIST,
SLURM_TASKS_PER_NODE (sbatch, "output environment variables"). PBS: PBS_NODEFILE. OAR: OAR_NODEFILE
(oarsub's documentation), with a line for each resource; its use cases start Hydra's proxies by
oarsh. Kubernetes: the hostfile that the MPI operator mounts and names for each MPI. Watson Machine
Learning: learners 1 to NUM_LEARNERS are the hosts LEARNER_NAME_PREFIX-1 and so on. SGE: PE_HOSTFILE
(sge_pe(5)), with `host slots queue processors` a line. Cobalt: COBALT_NODEFILE. Flux: see flux.py.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ddl.launch.errors import LaunchError
from ddl.launch.flux import flux_hosts
from ddl.launch.hosts import (
    MAX_HOSTS,
    Host,
    checked_name,
    is_local,
    merge,
    parse_hostfile,
    parse_hosts,
    whole_number,
)
from ddl.launch.own import find_program
from ddl.launch.unread import refuse_unread

_TASKS = re.compile(r"([1-9][0-9]{0,4})(?:\(x([1-9][0-9]{0,8})\))?")


class Starter(NamedTuple):
    """A way to start processes on other hosts: Hydra's name for it, and the program of it."""

    name: str
    program: str


SSH = Starter("ssh", "ssh")


@dataclass(frozen=True)
class Scheduler:
    """A batch system, or another program that reserves hosts.

    Attributes:
        name: as its users call it.
        variable: set, and not empty, in each of its jobs.
        hosts: reads the reserved hosts from the environment.
        starter: its own way to start processes on other hosts, if it has one.
    """

    name: str
    variable: str
    hosts: Callable[[Mapping[str, str]], list[Host]]
    starter: Starter | None = None


def scheduler_of(environ: Mapping[str, str]) -> Scheduler | None:
    """The scheduler whose job this is: the first of `SCHEDULERS` whose variable is set."""
    return next((one for one in SCHEDULERS if environ.get(one.variable)), None)


def reserved_hosts(environ: Mapping[str, str]) -> list[Host]:
    """The reserved hosts with their slots; [] outside of a batch system.

    Raises:
        LaunchError: a variable of the batch system is not understood; it names the variable.
    """
    scheduler = scheduler_of(environ)
    if scheduler:
        return scheduler.hosts(environ)
    refuse_unread(environ)
    return []


def starter(environ: Mapping[str, str], hosts: Iterable[str]) -> Starter:
    """The way to other hosts: that of the batch system where its program is there, else `SSH`.

    A batch system starts processes on the hosts that it reserved for us. Any others are reached by
    ssh, and so are all where its variables are left over from a job that is gone.
    """
    scheduler = scheduler_of(environ)
    way = scheduler.starter if scheduler else None
    if way is None or find_program(way.program) is None:
        return SSH
    try:
        reserved = {_short(host.name) for host in reserved_hosts(environ)}
    except LaunchError:
        return SSH
    far = {_short(host) for host in hosts if not is_local(host)}
    return way if far <= reserved else SSH


def _short(name: str) -> str:
    """The name without its domain, by which batch systems mostly go; an address as it is."""
    return name if name.replace(".", "").isdigit() else name.partition(".")[0]


def _lsf(environ: Mapping[str, str]) -> list[Host]:
    words = environ.get("LSB_MCPU_HOSTS", "").split()
    if words:
        if len(words) % 2:
            raise LaunchError(
                f"LSB_MCPU_HOSTS: expected pairs of host and slots: '{' '.join(words)}'"
            )
        pairs = zip(words[::2], words[1::2], strict=True)
        listed = ",".join(f"{name}:{slots}" for name, slots in pairs)
        hosts = parse_hosts(listed, "LSB_MCPU_HOSTS")
    elif "LSB_DJOB_HOSTFILE" in environ:
        hosts = parse_hostfile(Path(environ["LSB_DJOB_HOSTFILE"]))
    else:
        raise LaunchError("LSF has set neither LSB_MCPU_HOSTS nor LSB_DJOB_HOSTFILE", "Use -host.")
    # Slots of LSF are cores: how many ranks a host takes is for -accelerators and the GPUs to say.
    names = [Host(host.name) for host in hosts]
    first = hosts[0]
    # On clusters with launch nodes, the job's script runs on one, which has a single slot.
    if len(hosts) > 1 and first.slots == 1 and is_local(first.name) and (hosts[1].slots or 1) > 1:
        return names[1:]
    return names


def _slurm(environ: Mapping[str, str]) -> list[Host]:
    # In a step, the list is of the step's hosts where srun was called outside of the job.
    in_step = "SLURM_STEP_ID" in environ and bool(environ.get("SLURM_NODELIST"))
    variable = "SLURM_NODELIST" if in_step else "SLURM_JOB_NODELIST"
    names = [host.name for host in parse_hosts(environ[variable], variable)]
    said = environ.get("SLURM_TASKS_PER_NODE", "")
    # Slurm counts one task a node when nobody has said how many: that says nothing.
    if not said or not {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"} & set(environ):
        return [Host(name) for name in names]
    slots: list[int] = []
    for part in said.split(","):
        match = _TASKS.fullmatch(part.strip())
        if not match:
            raise LaunchError(f"SLURM_TASKS_PER_NODE: '{said}' is not understood", "Use -host.")
        slots += [int(match[1])] * min(int(match[2] or 1), MAX_HOSTS + 1)
    if len(slots) == len(names):
        return [Host(name, count) for name, count in zip(names, slots, strict=True)]
    if in_step:  # those are the tasks of a step on fewer hosts, as of a shell attached to the job
        each = whole_number(environ.get("SLURM_NTASKS_PER_NODE", ""))
        return [Host(name, each if each > 0 else None) for name in names]
    raise LaunchError(
        f"SLURM_TASKS_PER_NODE: '{said}' is for {len(slots)} hosts, but SLURM_JOB_NODELIST "
        f"names {len(names)}",
        "Use -host.",
    )


def _oar(environ: Mapping[str, str]) -> list[Host]:
    # A host's lines are its reserved resources, mostly cores: they do not count ranks.
    return [Host(host.name) for host in parse_hostfile(Path(environ["OAR_NODEFILE"]))]


def _sge(environ: Mapping[str, str]) -> list[Host]:
    path = environ["PE_HOSTFILE"]
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise LaunchError(f"PE_HOSTFILE: cannot read {path}: {reason}", "Use -host.") from None
    names = [words[0] for words in map(str.split, lines) if words]
    if not names:
        raise LaunchError(f"PE_HOSTFILE: {path} names no host", "Use -host.")
    # A host has a line for each of its queues. Slots are cores, as those of LSF.
    return [Host(checked_name(name, f"PE_HOSTFILE: {path}")) for name in dict.fromkeys(names)]


def _learners(environ: Mapping[str, str]) -> list[Host]:
    number = environ.get("NUM_LEARNERS", "")
    if not 1 <= whole_number(number) <= 65536:
        raise LaunchError(f"NUM_LEARNERS: '{number}' is not a number of learners")
    prefix = environ["LEARNER_NAME_PREFIX"]
    names = (f"{prefix}-{n}" for n in range(1, int(number) + 1))
    return merge((Host(checked_name(name, "LEARNER_NAME_PREFIX")) for name in names), "learners")


def _hostfile(variable: str) -> Callable[[Mapping[str, str]], list[Host]]:
    return lambda environ: parse_hostfile(Path(environ[variable]))


#: A job inside another's belongs to the first that is found.
SCHEDULERS = (
    Scheduler("LSF", "LSB_JOBID", _lsf, Starter("lsf", "blaunch")),
    Scheduler("Slurm", "SLURM_JOB_NODELIST", _slurm, Starter("slurm", "srun")),
    Scheduler("PBS", "PBS_NODEFILE", _hostfile("PBS_NODEFILE")),
    Scheduler("SGE", "PE_HOSTFILE", _sge, Starter("sge", "qrsh")),
    Scheduler("Cobalt", "COBALT_NODEFILE", _hostfile("COBALT_NODEFILE")),
    Scheduler("Flux", "FLUX_JOB_ID", flux_hosts),
    Scheduler("Flux", "FLUX_ENCLOSING_ID", flux_hosts),
    # Hydra has no name for oarsh, which stands in for ssh.
    Scheduler("OAR", "OAR_NODEFILE", _oar, Starter("ssh", "oarsh")),
    # The MPI operator names its hostfile for whichever MPI the job uses.
    *(
        Scheduler("Kubernetes", variable, _hostfile(variable))
        for variable in (
            "HYDRA_HOST_FILE",
            "OMPI_MCA_orte_default_hostfile",
            "I_MPI_HYDRA_HOST_FILE",
        )
    ),
    Scheduler("Watson Machine Learning", "LEARNER_NAME_PREFIX", _learners),
)
