"""Makes a job of the options: the host of each rank, and its environment."""

import math
import os
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ddl.launch.errors import LaunchError
from ddl.launch.gpus import Ask, gpus_of_hosts
from ddl.launch.hosts import Host, is_local, is_loopback, parse_hostfile, parse_hosts
from ddl.launch.mpi_arguments import read_mpi_arguments
from ddl.launch.options import Options
from ddl.launch.ports import free_port
from ddl.launch.rankfile import read_rankfile
from ddl.launch.tf_config import tf_variables
from ddl.launch.variables import encode_nodes, without_foreign

_MODE = re.compile(r"[bnrmcp](?::([0-9]{1,8}(?:x[0-9]{1,8}){0,3}))?")
_MOST = 1 << 24  # of one size, as in libddl's base/settings.cc
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Job:
    """All that a launcher needs: `hosts[placement[r]]` is the host of rank r."""

    command: tuple[str, ...]
    hosts: tuple[str, ...]
    placement: tuple[int, ...]
    environment: Mapping[str, str]
    added: tuple[str, ...]  # the names in `environment` that ddlrun set
    mpi_arguments: tuple[str, ...]
    min_ranks: int | None = None  # the job goes on while so many are there; None: while all are
    chief: int | None = None  # the rank whose good end is the job's: TensorFlow's servers never end

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.placement)

    def host_of(self, rank: int) -> str:
        """The host of a rank, as the user named it."""
        return self.hosts[self.placement[rank]]

    def counts(self) -> list[int]:
        """The number of ranks of each host."""
        return [self.placement.count(index) for index in range(len(self.hosts))]


def make_job(
    options: Options, environ: Mapping[str, str], reserved: list[Host], ask: Ask | None = None
) -> Job:
    """The job of a command line.

    Args:
        options: the command line.
        environ: ddlrun's variables.
        reserved: the hosts that a batch system gave us, if any.
        ask: tells the GPUs of other hosts; None: they are taken to be as this one.

    Raises:
        LaunchError: the command line makes no job.
    """
    mpi = read_mpi_arguments(options.mpi_arguments)
    exports = _exports([*options.exports, *mpi.exports], environ)
    hosts = _hosts(options, reserved)
    _check_words(options)
    slots: list[str] = []
    if options.rankfile:
        given = [host.name for host in hosts] if hosts else None
        names, placement, slots = read_rankfile(options.rankfile, given)
        if options.np not in (None, len(placement)):
            raise LaunchError(
                f"-np {options.np}, but the rankfile {options.rankfile} has {len(placement)} ranks"
            )
    else:
        hosts = hosts or [Host("localhost")]
        if options.np is None:  # then each host gets ranks; before any is asked for its GPUs
            _check_program(options.command, [host.name for host in hosts])
        count = partial(gpus_of_hosts, environ=environ, exports=exports, ask=ask)
        counts = _ranks_per_host(hosts, options, count, are_reserved=hosts is reserved)
        names = [host.name for host, count in zip(hosts, counts, strict=True) if count]
        placement = [n for n, count in enumerate(filter(None, counts)) for _ in range(count)]
    _check_program(options.command, names)
    added = {
        **_torch_variables(names[placement[0]], names),
        **_ddl_options(options, environ, len(names), placement),
        **_tf_variables(options, [names[index] for index in placement]),
        **({"UCX_TLS": "tcp,sm,self", "FI_PROVIDER": "tcp"} if options.tcp or mpi.tcp else {}),
        **_variables_of(options),
        "DDLRUN_EXPORTED": " ".join(exports),
        **({"DDLRUN_SLOTS": ";".join(slots)} if any(slots) else {}),
        "DDLRUN_NODES": encode_nodes(tuple(placement)),
        **({"DDLRUN_HOSTS": ",".join(names)} if "SLURM_JOB_ID" in environ else {}),
        **exports,
    }
    return Job(
        command=tuple(options.command),
        hosts=tuple(names),
        placement=tuple(placement),
        environment=without_foreign(environ) | added,
        added=tuple(added),
        mpi_arguments=tuple(mpi.words),
        min_ranks=_min_ranks(options, len(placement)),
        chief=options.parameter_servers,
    )


def _variables_of(options: Options) -> dict[str, str]:
    """The variables that need no other knowledge."""
    return {
        "DDLRUN_BIND": "0" if options.no_bind else "1",
        "DDLRUN_BIND_GPUS": "1" if options.bind_gpus else "0",
        "DDLRUN_GRACE": f"{options.grace:g}",
        **({"DDLRUN_KEEP_GOING": "1"} if options.keep_going else {}),
        **({"DDL_TIMELINE": str(options.timeline.absolute())} if options.timeline else {}),
    }


def _min_ranks(options: Options, size: int) -> int | None:
    if options.min_ranks and options.min_ranks > size:
        raise LaunchError(f"-min {options.min_ranks}, but the job has {size} ranks")
    return (options.min_ranks or 1) if options.keep_going else None


def _check_words(options: Options) -> None:
    """Errors whatever the hosts are, so that they come before any host is asked."""
    if options.mode:
        read_mode(options.mode)
    if options.topology:
        _topology_file(options.topology)
    if options.no_ddl_options and (options.mode or options.ddl_arguments or options.topology):
        raise LaunchError("-no_ddloptions excludes -mode, -topology and -ddlarg")


def _hosts(options: Options, reserved: list[Host]) -> list[Host]:
    if options.host is not None and options.hostfile:
        raise LaunchError("-host and -hostfile exclude each other")
    if options.host is not None:
        return parse_hosts(options.host)
    if options.hostfile:
        return parse_hostfile(options.hostfile)
    return reserved


def _ranks_per_host(
    hosts: list[Host],
    options: Options,
    gpus_of: Ask,
    *,
    are_reserved: bool,
) -> list[int]:
    """Fills the hosts in order; hosts of unknown size share -np evenly."""
    if options.accelerators:
        for host in hosts if not are_reserved else ():  # a batch system's tasks are no limit
            if host.slots is not None and host.slots < options.accelerators:
                raise LaunchError(
                    f"-accelerators {options.accelerators}, but {host.name} has {host.slots} slots"
                )
        slots = [options.accelerators] * len(hosts)
    elif options.np and all(host.slots is None for host in hosts):
        each, more = divmod(options.np, len(hosts))
        return [each + (n < more) for n in range(len(hosts))]
    else:
        unknown = [host.name for host in hosts if not host.slots]
        gpus = dict(zip(unknown, gpus_of(unknown), strict=True))
        slots = [host.slots or gpus[host.name] or 1 for host in hosts]
    wanted = options.np or sum(slots)
    if wanted > sum(slots):
        raise LaunchError(
            f"-np {wanted}, but the hosts have space for {sum(slots)} ranks",
            "Give more slots, as in -H localhost:4, or more hosts.",
        )
    counts = []
    for space in slots:
        counts.append(min(space, wanted))
        wanted -= counts[-1]
    return counts


def _ddl_options(
    options: Options, environ: Mapping[str, str], n_hosts: int, placement: list[int]
) -> dict[str, str]:
    """DDL_OPTIONS, as the user says.

    No -mode of our own unless there is something to tell by it: with one, the library no longer
    asks the hosts for their places.
    """
    topology = _topology(options, n_hosts, placement)
    if options.no_ddl_options:
        return {}
    said = bool(
        options.mode
        or options.ddl_arguments
        or options.topology
        or options.aisles
        or options.racks
        or options.nodes
    )
    if "DDL_OPTIONS" in environ and not said:
        return {}
    dimensions = read_mode(options.mode) if options.mode else []
    if dimensions:
        if math.prod(dimensions) != len(placement):
            raise LaunchError(
                f"-mode {options.mode}: {' x '.join(map(str, dimensions))} is "
                f"{math.prod(dimensions)}, but the job has {len(placement)} ranks"
            )
        mode = [f"-mode {options.mode}"]
    else:
        told = topology and (options.aisles or options.racks or options.nodes)
        mode = [f"-mode p:{'x'.join(map(str, topology))}"] if told else []
    tree = [f"-topology {_topology_file(options.topology)}"] if options.topology else []
    return {"DDL_OPTIONS": " ".join([*mode, *tree, *options.ddl_arguments])}


def staging_options(options: Options, job: Job) -> str:
    """DDL_OPTIONS for one process on each host of the job: of the network's shape alone."""
    if options.topology:
        return f"-topology {_topology_file(options.topology)}"
    hosts = len(job.hosts)
    sizes = read_mode(options.mode)[1:] if options.mode else []
    if not sizes and (options.aisles or options.racks or options.nodes):
        sizes = _topology(options, hosts, list(range(hosts)))[1:]
    fits = sizes and math.prod(sizes) == hosts
    return f"-mode p:{'x'.join(map(str, [1, *sizes]))}" if fits else ""


def read_mode(text: str) -> list[int]:
    """The sizes of a mode: ranks per host x hosts per rack x …; [] for a letter alone.

    Raises:
        LaunchError: it is no mode.
    """
    match = _MODE.fullmatch(text)
    if match and match[1] is None:
        return []
    sizes = [int(number) for number in match[1].split("x")] if match else [0]
    if not all(1 <= size <= _MOST for size in sizes):
        raise LaunchError(
            f"-mode {text} is not understood",
            "Write X or X:AxBxC with X one of b n r m c p, for example -mode p:4x2.",
        )
    return sizes


def _topology_file(path: Path) -> Path:
    """The absolute path. Rank 0 reads the file, which says itself what is wrong in it."""
    if not path.is_file():
        raise LaunchError(f"-topology {path}: there is no such file")
    if any(map(str.isspace, str(path.absolute()))):
        raise LaunchError(f"-topology {path}: DDL_OPTIONS cannot hold a path with blanks")
    return path.absolute()


def _topology(options: Options, n_hosts: int, placement: list[int]) -> list[int]:
    """Ranks per host x hosts per rack x racks per aisle x aisles; [] when hosts differ."""
    aisles, racks = options.aisles or 1, options.racks or 1
    nodes = options.nodes or max(1, n_hosts // (aisles * racks))
    if aisles * racks * nodes != n_hosts:
        raise LaunchError(
            f"{aisles} aisles x {racks} racks x {nodes} nodes is {aisles * racks * nodes}, "
            f"but the job runs on {n_hosts} hosts"
        )
    per_host = {placement.count(n) for n in range(n_hosts)}
    if len(per_host) > 1:
        if options.aisles or options.racks or options.nodes:
            raise LaunchError("-aisles, -racks and -nodes need the same number of ranks per host")
        return []
    shape = [per_host.pop(), nodes, racks, aisles]
    while len(shape) > 2 and shape[-1] == 1:
        shape.pop()
    return shape


def _torch_variables(first_host: str, names: list[str]) -> dict[str, str]:
    """The address of rank 0; each rank's wrapper adds RANK, WORLD_SIZE and so on."""
    address = _address(first_host, names)
    return {"MASTER_ADDR": address, "MASTER_PORT": str(free_port(is_local=is_local(first_host)))}


def _tf_variables(options: Options, host_of_rank: list[str]) -> dict[str, str]:
    """The addresses at which the ranks' TensorFlow will listen, if that is asked for."""
    if not (options.tf_config or options.parameter_servers):
        return {}
    ports: list[int] = []
    for host in host_of_rank:
        ports.append(free_port(is_local=is_local(host), taken=ports))
    names = [_address(host, host_of_rank) for host in host_of_rank]
    addresses = [f"{name}:{port}" for name, port in zip(names, ports, strict=True)]
    return tf_variables(addresses, options.parameter_servers or 0)


def _address(host: str, names: list[str]) -> str:
    """The address by which all `names` reach `host`: the user's own words, wherever they can."""
    if all(is_local(name) for name in names):
        return "127.0.0.1"
    return socket.gethostname() if is_loopback(host) else host


def _exports(texts: list[str], environ: Mapping[str, str]) -> dict[str, str]:
    exports = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise LaunchError(f"-x {text}: '{name}' is not a variable's name")
        if not equals and name not in environ:
            raise LaunchError(f"-x {name}: this variable is not set", f"Write -x {name}=VALUE.")
        exports[name] = value if equals else environ[name]
    return exports


def _check_program(command: list[str], names: list[str]) -> None:
    """On other hosts the rank's wrapper finds out; here we can say it before anything starts."""
    program = command[0]
    if shutil.which(program) or not any(is_local(name) for name in names):
        return
    path = Path(program)
    if path.is_dir():
        raise LaunchError(f"the program {program} is a folder")
    if path.is_file():
        script = path.suffix == ".py"
        hint = f"Run `ddlrun ... python {program}`." if script else f"Try chmod +x {program}."
        raise LaunchError(f"the program {program} is not executable", hint)
    where = "" if os.sep in program else " on PATH"
    raise LaunchError(f"the program {program} is not found{where}")
