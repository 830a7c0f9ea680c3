"""Reads the options of a batch script: numbers, times and names are checked here."""

import re
from dataclasses import dataclass
from pathlib import Path

from ddl.launch.errors import LaunchError
from ddl.launch.hosts import MAX_HOSTS, whole_number
from ddl.launch.options import Options, names_hosts
from ddl.launch.script.systems import System, system_of

MOST_SIGNAL = 65535  # seconds; Slurm's limit for --signal
_TIME = re.compile(r"(?:(?:([0-9]{1,4})-)?([0-9]{1,4}):)([0-5][0-9]):([0-5][0-9])")
#: Names stand in comments of the shell and in YAML: nothing that either of them interprets.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
_PATH_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+:/@-]{0,254}")
_POD_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class Request:
    """A job that is asked for.

    Attributes:
        hosts: their number.
        ranks: on each host; None: ddlrun decides there.
        gpus: of each host; None: none are asked for.
        cores: of each rank; None: not said.
        seconds: the wall time; None: the batch system's default.
        signal: seconds before the end at which ranks get SIGUSR1; None: never.
        queue, account, module, overlay, image: as the user says; None: not said.
        words: ddlrun's own words in the job, with the program.
    """

    system: System
    hosts: int
    ranks: int | None
    gpus: int | None
    cores: int | None
    seconds: int | None
    signal: int | None
    name: str
    queue: str | None
    account: str | None
    module: str | None
    overlay: str | None
    image: str | None
    words: tuple[str, ...]


def read_request(options: Options) -> Request:
    """The job of a command line with `-script`; LaunchError: it is wrong, or incomplete."""
    given = options.batch
    if "script" not in given:
        raise LaunchError(
            f"-{next(iter(given))} is for batch scripts", "Say for which system: -script slurm."
        )
    system = system_of(given["script"])
    _check_together(options, system)
    hosts = _number(given, "N")
    if hosts is None:
        raise LaunchError(f"-script {system.name} needs the number of hosts", "Write -N 2.")
    if hosts > MAX_HOSTS:
        raise LaunchError(f"-N {hosts}: more than {MAX_HOSTS} hosts")
    gpus = _number(given, "gpus")
    seconds = read_time(given["time"]) if "time" in given else None
    image = _name(given, "image", _PATH_NAME)
    if system.is_manifest and image is None:
        raise LaunchError(f"-script {system.name} needs a container image", "Write -image NAME.")
    return Request(
        system=system,
        hosts=hosts,
        ranks=_ranks(options, hosts, gpus),
        gpus=gpus,
        cores=_number(given, "cores"),
        seconds=seconds,
        signal=_signal(given, seconds),
        name=_name(given, "name", _POD_NAME if system.is_manifest else _NAME)
        or default_name(options.command, is_pod=system.is_manifest),
        queue=_name(given, "queue"),
        account=_name(given, "account"),
        module=_name(given, "module", _PATH_NAME),
        overlay=given.get("overlay"),
        image=image,
        words=_words(options, gpus),
    )


def read_time(text: str) -> int:
    """Seconds of a wall time in minutes, HH:MM:SS or D-HH:MM:SS; LaunchError: it is none."""
    match = _TIME.fullmatch(text)
    days, hours, minutes, seconds = (
        (int(part or 0) for part in match.groups()) if match else [0] * 4
    )
    if not match:
        minutes = max(0, whole_number(text))
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total == 0:
        raise LaunchError(f"-time {text}: not a time", "Write minutes, HH:MM:SS or D-HH:MM:SS.")
    return total


def default_name(command: list[str], *, is_pod: bool) -> str:
    """The job's name by its program: the first word that ends in `.py`, else the first.

    Args:
        command: the program and its arguments.
        is_pod: the name becomes that of pods, which are small letters, digits and hyphens.
    """
    word = next((word for word in command if word.endswith(".py")), command[0])
    stem = Path(word).stem
    if not is_pod:
        return re.sub(r"[^A-Za-z0-9_.+-]", "-", stem)[:64].lstrip(".+-") or "ddlrun"
    plain = re.sub(r"[^a-z0-9-]", "-", stem.lower())[:32].strip("-")
    return plain if plain[:1].isalpha() else f"ddl-{plain}".rstrip("-")


def _check_together(options: Options, system: System) -> None:
    for option, reason in system.refused.items():
        if option in options.batch:
            raise LaunchError(f"-{option} does not go with -script {system.name}", reason)
    if names_hosts(options) or options.rankfile:
        raise LaunchError(
            "-script excludes -host, -hostfile and -rankfile",
            "The batch system chooses the hosts: say how many with -N.",
        )
    if options.dry_run or options.show_topology:
        raise LaunchError("-script excludes -dry-run and -show_topology: it starts nothing")
    if options.launcher == "jsrun":
        raise LaunchError("-script excludes -launcher jsrun, which starts nothing yet")
    for word in options.command + options.words:
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", word):
            raise LaunchError(f"{word!r} has a character that no script can hold")


def _ranks(options: Options, hosts: int, gpus: int | None) -> int | None:
    """Ranks of each host: what is asked for, else one for each GPU."""
    if options.np and options.accelerators and options.np > hosts * options.accelerators:
        raise LaunchError(
            f"-np {options.np}, but {hosts} hosts with {options.accelerators} ranks each have "
            f"space for {hosts * options.accelerators}",
            "Ask for more hosts with -N.",
        )
    if options.accelerators:
        return options.accelerators
    return -(-options.np // hosts) if options.np else gpus


def _words(options: Options, gpus: int | None) -> tuple[str, ...]:
    """The words after `ddlrun` in the job: all that do not speak of the script."""
    each = [] if options.accelerators or options.np or not gpus else ["-accelerators", str(gpus)]
    program = [] if options.probe else options.command
    mark = ["--"] if program and program[0].startswith("-") else []
    return (*each, *options.words, *mark, *program)


def _signal(given: dict[str, str], seconds: int | None) -> int | None:
    number = _number(given, "signal")
    if number is None:
        return None
    if seconds is None:
        raise LaunchError("-signal needs a wall time to count back from", "Write -time HH:MM:SS.")
    if not number < seconds or number > MOST_SIGNAL:
        raise LaunchError(
            f"-signal {number}: not below the wall time of {seconds} s and {MOST_SIGNAL + 1} s"
        )
    return number


def _number(given: dict[str, str], option: str) -> int | None:
    if option not in given:
        return None
    number = whole_number(given[option])
    if number < 1:
        raise LaunchError(f"-{option} {given[option]}: not a whole number from 1")
    return number


def _name(given: dict[str, str], option: str, pattern: re.Pattern[str] = _NAME) -> str | None:
    text = given.get(option)
    if text is not None and not pattern.fullmatch(text):
        hint = "Use letters, digits and _ . + - only."
        if pattern is _POD_NAME:
            hint = "Use at most 40 small letters, digits and hyphens, a letter first."
        elif pattern is _PATH_NAME:
            hint = "Use letters, digits and _ . + - : / @ only."
        raise LaunchError(f"-{option} {text!r} is not a name", hint)
    return text
