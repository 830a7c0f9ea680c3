"""The command line: every option as `-opt` and `--opt`; the first other word is the program."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ddl.launch.errors import LaunchError
from ddl.launch.hosts import whole_number
from ddl.launch.outcome import EXIT_TIMEOUT
from ddl.launch.own import own_python
from ddl.launch.script_options import SCRIPT_FLAGS, SCRIPT_VALUES
from ddl.launch.script_options import USAGE as SCRIPT_USAGE

LAUNCHERS = ("hydra", "jsrun")
BACKENDS = ("gloo", "nccl")  # of torch.distributed, as in ddl_torch/_names.py
GRACE = 2.0  # seconds for the ranks to end by themselves, if -grace does not say
KEEP_DAYS = 7.0  # for copies of -stage that no job has used, if -stage_keep does not say

USAGE = f"""\
Usage: ddlrun [options] PROGRAM [ARGUMENTS]

Starts PROGRAM as many ranks. Every option works as -opt and as --opt.

Where:
  -H, -host LIST      hosts: h1,h2 or h1:4,h2:4 (slots) or node[01-18]; default: localhost
  -hostfile FILE      the same, one `name [slots=N]` a line, # for comments
  -np, -n N           number of ranks; default: all slots
  -accelerators N     ranks per host; default: the slots, else the GPUs, else 1
  -rf, -rankfile FILE which rank runs where: `rank N=host` lines, with `slot=0:0-7` its cores
  -topology FILE      how the hosts are connected: racks, links and their speeds (YAML)
  -aisles, -racks, -nodes N   the same in short: racks per aisle, nodes per rack
How:
  -m, -mode X[:AxBxC] A ranks a host, B hosts a rack, C racks; A*B*C must be the number of
                      ranks. DDL's letter X (b n r m c p) is taken, and changes nothing:
                      see -ddlarg "-schedule ..." for that
  -ddlarg, -ddloption TEXT    more text for DDL_OPTIONS
  -no_ddloptions      leave DDL_OPTIONS alone
  -instead_of LIST    torch programs that ask for these backends get ddl: gloo, nccl or gloo,nccl
  -x VAR[=VALUE]      an environment variable for the ranks
  -tf_config          TF_CONFIG for tf.distribute: every rank is a worker
  -ps N               the same, but the first N ranks are parameter servers, the next the chief
  -launcher NAME      hydra, the default, or jsrun, which is only shown: with -dry-run
  -mpiarg TEXT        more arguments for mpiexec
  -t, -tcp            keep MPI to TCP between hosts
  -s, -skipchecks     do not ask the hosts first whether they have this environment
  -no_bind            leave the ranks on all cores
  -bind_gpus          each rank sees its own GPUs only, by CUDA_VISIBLE_DEVICES
  -stage[=IMAGE]      run from a copy of the environment on each host's own disk, which is
                      brought there first; IMAGE is of `ddlce env image`
  -stage_keep DAYS    remove copies there that no job has used for that long; default: {KEEP_DAYS:g}
  -timeline FILE      write all ranks' collectives into FILE, which perfetto shows
                      (DDL_TIMELINE); python -m ddl.timeline FILE says who waited for whom
  -timeout SECONDS    end the run after that time, with exit status {EXIT_TIMEOUT}
  -grace SECONDS      how long the ranks may save after SIGTERM, before SIGKILL; default: {GRACE:g}
  -keep_going         go on when ranks are lost, for programs that survive it (docs: torchft)
  -min N              with -keep_going: end the job below N ranks; default: 1
  -probe FILE         measure the links between the hosts and write -topology's FILE
  -show_topology      print how the hosts are connected and what allreduce does there; end
  -dry-run            print the command and end
  -v                  say what is done, and how long the start takes
  -version, -help
{SCRIPT_USAGE}
Exit status: that of the first rank that failed (128 + number for a signal); {EXIT_TIMEOUT} after
the timeout; 2 for a wrong command line; 0 when every rank ended with 0, or, with
-keep_going, -min ranks did.

Example: ddlrun -H localhost:4 python train.py
"""

#: Converts a value, of the option as it was written; raises LaunchError.
Convert = Callable[[str, str], object]


def _text(value: str, option: str) -> str:
    return value


def _path(value: str, option: str) -> Path:
    return Path(value)


def _count(value: str, option: str) -> int:
    number = whole_number(value)
    if number < 1:
        raise LaunchError(f"{option} {value}: not a whole number from 1")
    return number


def _seconds(value: str, option: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:  # NaN fails both
        raise LaunchError(f"{option} {value}: not a number of seconds above 0")
    return seconds


def _days(value: str, option: str) -> float:
    try:
        days = float(value)
    except ValueError:
        days = -1.0
    if not 0 <= days < 1e5:  # NaN fails both
        raise LaunchError(f"{option} {value}: not a number of days from 0")
    return days


def _launcher(value: str, option: str) -> str:
    if value not in LAUNCHERS:
        raise LaunchError(f"{option} {value}: there is no such launcher", "Write hydra or jsrun.")
    return value


def _instead_of(value: str, option: str) -> str:
    """The variable that ddl_torch reads."""
    if not set(value.lower().split(",")) <= set(BACKENDS):
        raise LaunchError(
            f"{option} {value}: ddl cannot stand in for these", f"Write {','.join(BACKENDS)}."
        )
    return f"DDL_INSTEAD_OF={value.lower()}"


#: Options that take a value: the field of Options, and how the value is converted. A field that is
#: a list collects the values; any other option may be given once.
VALUES: dict[str, tuple[str, Convert]] = {
    "H": ("host", _text),
    "host": ("host", _text),
    "hostfile": ("hostfile", _path),
    "np": ("np", _count),
    "n": ("np", _count),
    "accelerators": ("accelerators", _count),
    "m": ("mode", _text),
    "mode": ("mode", _text),
    "ddlarg": ("ddl_arguments", _text),
    "ddloption": ("ddl_arguments", _text),
    "rf": ("rankfile", _path),
    "rankfile": ("rankfile", _path),
    "topology": ("topology", _path),
    "probe": ("probe", _path),
    "aisles": ("aisles", _count),
    "racks": ("racks", _count),
    "nodes": ("nodes", _count),
    "launcher": ("launcher", _launcher),
    "mpiarg": ("mpi_arguments", _text),
    "x": ("exports", _text),
    "instead_of": ("exports", _instead_of),
    "ps": ("parameter_servers", _count),
    "timeline": ("timeline", _path),
    "timeout": ("timeout", _seconds),
    "grace": ("grace", _seconds),
    "min": ("min_ranks", _count),
    "stage": ("stage_image", _path),  # as -stage=IMAGE only: it is a flag, too
    "stage_keep": ("stage_keep", _days),
}
#: Options without a value: the field of Options that they set.
FLAGS = {
    "no_ddloptions": "no_ddl_options",
    "t": "tcp",
    "tcp": "tcp",
    "s": "skip_checks",
    "skipchecks": "skip_checks",
    "tf_config": "tf_config",
    "no_bind": "no_bind",
    "bind_gpus": "bind_gpus",
    "keep_going": "keep_going",
    "stage": "stage",
    "show_topology": "show_topology",
    "dry_run": "dry_run",
    "v": "verbose",
    "verbose": "verbose",
    "version": "version",
    "h": "help",
    "help": "help",
}


@dataclass
class Options:
    """The command line, checked word by word; layout.py finds the meaning of the whole."""

    command: list[str] = field(default_factory=list)
    host: str | None = None
    hostfile: Path | None = None
    np: int | None = None
    accelerators: int | None = None
    mode: str | None = None
    ddl_arguments: list[str] = field(default_factory=list)
    rankfile: Path | None = None
    topology: Path | None = None
    probe: Path | None = None
    aisles: int | None = None
    racks: int | None = None
    nodes: int | None = None
    launcher: str | None = None
    mpi_arguments: list[str] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)
    parameter_servers: int | None = None
    timeline: Path | None = None
    timeout: float | None = None
    grace: float = GRACE
    keep_going: bool = False
    min_ranks: int | None = None
    stage: bool = False
    stage_image: Path | None = None
    stage_keep: float | None = None
    no_ddl_options: bool = False
    tcp: bool = False
    skip_checks: bool = False
    tf_config: bool = False
    no_bind: bool = False
    bind_gpus: bool = False
    show_topology: bool = False
    dry_run: bool = False
    verbose: bool = False
    version: bool = False
    help: bool = False
    batch: dict[str, str] = field(default_factory=dict)  # the options of batch scripts
    given: set[str] = field(default_factory=set)  # the fields of one value that are not defaults
    words: list[str] = field(default_factory=list)  # all others, as they were given


def names_hosts(options: Options) -> bool:
    """Whether the command line itself says where to run: a batch system need not be asked."""
    return options.host is not None or options.hostfile is not None


def parse(words: list[str]) -> Options:
    """Options of a command line (without the program's own name); LaunchError if it is wrong."""
    options = Options()
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        at = len(words) - len(rest)
        word = rest.pop(0)
        if word == "--":
            break
        key, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        name = key if key in VALUES else key.replace("-", "_")
        if name in FLAGS and not equals:
            setattr(options, FLAGS[name], True)
        elif name in SCRIPT_FLAGS and not equals:
            options.batch[name] = value
        elif name in VALUES or name in SCRIPT_VALUES:
            if not equals:
                if not rest:
                    raise LaunchError(f"{word} needs a value", "See ddlrun --help.")
                value = rest.pop(0)
            _store(options, name, value, word.partition("=")[0])
        else:
            raise LaunchError(f"unknown option {word}", _suggestion(name))
        if name not in options.batch:
            options.words += words[at : len(words) - len(rest)]
    options.command = rest
    options.stage = options.stage or options.stage_image is not None
    if options.stage and (options.probe or options.show_topology):
        raise LaunchError("-stage excludes -probe and -show_topology")
    if options.stage_keep is not None and not options.stage:
        raise LaunchError("-stage_keep needs -stage")
    if options.min_ranks is not None and not options.keep_going:
        raise LaunchError("-min needs -keep_going")
    if options.keep_going and options.parameter_servers is not None:
        raise LaunchError("-keep_going excludes -ps: parameter servers do not end by themselves")
    if options.probe and not options.help:
        _turn_into_probe(options)
    elif options.show_topology and not rest:
        options.command = [sys.executable]  # nothing is started
    elif not rest and not (options.help or options.version):
        raise LaunchError("no program given", "Example: ddlrun -H localhost:4 python train.py")
    return options


def _turn_into_probe(options: Options) -> None:
    """The program is ours, with one rank on each host."""
    assert options.probe
    if options.command:
        raise LaunchError(f"-probe takes no program, but '{options.command[0]}' is given")
    if options.np or options.accelerators or options.rankfile or options.topology:
        raise LaunchError("-probe excludes -np, -accelerators, -rankfile and -topology")
    options.command = own_python("-m", "ddl.probe", str(options.probe.absolute()))
    options.accelerators = 1


def _store(options: Options, name: str, value: str, option: str) -> None:
    if name in SCRIPT_VALUES:
        if name in options.batch:
            raise LaunchError(f"{option} is given twice")
        options.batch[name] = value
        return
    field_name, convert = VALUES[name]
    current = getattr(options, field_name)
    if isinstance(current, list):
        current.append(convert(value, option))
        return
    if field_name in options.given:
        raise LaunchError(f"{option} is given twice")
    options.given.add(field_name)
    setattr(options, field_name, convert(value, option))


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, [*VALUES, *FLAGS, *SCRIPT_VALUES, *SCRIPT_FLAGS], n=1)
    return f"Did you mean -{close[0]}?" if close else "See ddlrun --help."
