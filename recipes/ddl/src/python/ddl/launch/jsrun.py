"""`ddlrun -launcher jsrun -dry-run`: the command by which IBM's jsrun would start a job.

Sites with CSM let nothing but jsrun start processes on the hosts of a job of LSF. An explicit
resource file (ERF) gives each rank its host, cores and GPUs. Sources: IBM's documentation of jsrun
and of the ERF format, in that of LSF's Job Step Manager. Nobody has run this: it is only shown.
"""

import re
import shlex
from collections.abc import Iterator, Mapping

from ddl.launch.batch import reserved_hosts
from ddl.launch.errors import LaunchError
from ddl.launch.hosts import whole_number
from ddl.launch.layout import Job, make_job
from ddl.launch.options import Options, names_hosts

THREADS = 4  # of a core of POWER9, as CSM sets hosts up; logical indices count them
FILE = "ddlrun.erf"
REMARK = "# By IBM's documentation of jsrun and its ERF. ddlrun has never run with jsrun."
_PREAMBLE = (
    "cpu_index_using: logical",
    "overlapping_rs: allow",  # resource sets of a host's ranks share its GPUs
    "oversubscribe_gpu: allow",
    "launch_distribution: packed",
)  # and that of the cores, which ranks share with -no_bind
_VARIABLES = ("DDL_OPTIONS", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "UCX_TLS", "FI_PROVIDER")
_CORES = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")


def show_jsrun(options: Options, environ: Mapping[str, str]) -> str:
    """A shell script that writes the ERF and calls jsrun.

    Args:
        options: of ddlrun, with `-launcher jsrun`.
        environ: of a job of LSF.

    Raises:
        LaunchError: this is no job of LSF, or the options ask for something that no ERF says.
    """
    if not options.dry_run:
        raise LaunchError(
            "-launcher jsrun starts nothing yet: nobody has run it",
            "Give -dry-run too, to see the command and its ERF.",
        )
    if names_hosts(options):
        raise LaunchError("-launcher jsrun excludes -host and -hostfile", "LSF gives the hosts.")
    cores = _cores(environ)
    if not (options.np or options.accelerators or options.rankfile):
        raise LaunchError(
            "-launcher jsrun cannot ask the hosts how many GPUs they have",
            "Say by -accelerators how many ranks each takes.",
        )
    job = make_job(options, environ, reserved_hosts(environ))
    exported = job.environment["DDLRUN_EXPORTED"].split()
    named = [name for name in (*_VARIABLES, *exported) if name in job.added]
    variables = [word for name in named for word in ("--env", f"{name}={job.environment[name]}")]
    line = shlex.join(["jsrun", "--erf_input", FILE, *variables, *job.command])
    gpus = options.accelerators or 0
    shared = f"oversubscribe_cpu: {'allow' if options.no_bind else 'error'}"
    ranks = _rank_lines(job, cores, gpus, own_gpu=options.bind_gpus, bind=not options.no_bind)
    return "\n".join([REMARK, f"cat >{FILE} <<'ERF'", *_PREAMBLE, shared, *ranks, "ERF", line])


def _cores(environ: Mapping[str, str]) -> dict[str, int]:
    """The cores of each host of the job; its slots are cores."""
    words = environ.get("LSB_MCPU_HOSTS", "").split()
    if not environ.get("LSB_JOBID") or not words:
        raise LaunchError(
            "-launcher jsrun needs a job of LSF, but LSB_JOBID or LSB_MCPU_HOSTS is not set",
            "Call it in a job: bsub -Is -nnodes 2 ddlrun ...",
        )
    reserved_hosts(environ)  # says what is wrong with it
    return {name: whole_number(count) for name, count in zip(words[::2], words[1::2], strict=True)}


def _rank_lines(
    job: Job, cores: dict[str, int], gpus: int, *, own_gpu: bool, bind: bool
) -> Iterator[str]:
    """A line of the ERF for each rank.

    Args:
        job: its ranks and hosts. ERFs number hosts from 1, in the order of LSF.
        cores: of each host of LSF's, by name.
        gpus: of each host; 0: not said.
        own_gpu: each rank gets the GPU of its local rank, not all.
        bind: each rank gets its share of the cores, not all.
    """
    number = {name: index for index, name in enumerate(_compute_hosts(cores), start=1)}
    slots = job.environment.get("DDLRUN_SLOTS", "").split(";")
    counts, seen = job.counts(), [0] * len(job.hosts)
    for rank, index in enumerate(job.placement):
        host, local = job.hosts[index], seen[index]
        seen[index] += 1
        if host not in number:
            raise LaunchError(f"host {host} is not one of the job's: {', '.join(number)}")
        slot = slots[rank] if any(slots) else ""
        ranks, place = (counts[index], local) if bind else (1, 0)
        cpus = _of_slot(rank, slot) if slot else _of_share(host, cores[host], ranks, place)
        gpu = f"{{{local % gpus}}}" if own_gpu and gpus else f"{{0-{gpus - 1}}}"
        tail = f"; gpu: {gpu}" if gpus else ""
        yield f"rank: {rank}: {{ host: {number[host]}; cpu: {cpus}{tail} }}"


def _compute_hosts(cores: dict[str, int]) -> list[str]:
    """All but the launch node, which has a single slot where the others have more."""
    names = list(cores)
    return names[1:] if len(names) > 1 and cores[names[0]] == 1 < cores[names[1]] else names


def _of_share(host: str, cores: int, ranks: int, local: int) -> str:
    each = cores // ranks
    if not each:
        raise LaunchError(f"{ranks} ranks on {host}, but the job has {cores} of its cores")
    return _threads(local * each, local * each + each - 1)


def _of_slot(rank: int, slot: str) -> str:
    if not _CORES.fullmatch(slot):
        raise LaunchError(
            f"rank {rank}: an ERF has no sockets, but the rankfile says slot={slot}",
            "Count the cores over all sockets, as in slot=0-3,6.",
        )
    parts = [part.partition("-") for part in slot.split(",")]
    return ",".join(_threads(int(first), int(last or first)) for first, _, last in parts)


def _threads(first: int, last: int) -> str:
    """The hardware threads of cores `first` to `last`."""
    return f"{{{first * THREADS}-{last * THREADS + THREADS - 1}}}"
