"""`ddlrun -show_topology`: the tree that a job's hosts make, and the library's schedules on it.

The program is not started. The tree is made and the schedules are found by the library's own code;
where that goes by the hosts' places, or their GPUs, the hosts are asked.
"""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ddl.launch.ask import ask_gpus, ask_places
from ddl.launch.errors import HostError, LaunchError
from ddl.launch.hosts import MAX_HOSTS, Host
from ddl.launch.layout import Job, make_job, read_mode
from ddl.launch.options import Options

if TYPE_CHECKING:
    from ddl._core import Tree

SIZES = (64 << 10, 4 << 20, 64 << 20)


def show(options: Options, environ: Mapping[str, str], reserved: list[Host]) -> str:
    """The text for these options. LaunchError: they are wrong, or the library is missing."""
    try:
        from ddl import _core
        from ddl.sim.report import LINKS_UNKNOWN, describe_rows, describe_tree, make_rows
    except ImportError as error:
        raise LaunchError(f"-show_topology needs the library on this host: {error}") from None
    try:
        shown = _read_tree(options, environ, reserved)
        tree, ranks = shown.tree, shown.ranks
        chunking = _core.usual_chunking(tree, ranks)
        schedule = shown.schedule
        rows = make_rows(tree, SIZES, schedule, chunking, tree.usual_wire())
    except ValueError as error:
        raise LaunchError(str(error)) from None
    hosts = tree.num_hosts()
    each = f"{ranks} rank{'s' * (ranks > 1)} each"
    lines = [f"{hosts} host{'s' * (hosts > 1)} with {each}, {shown.source}"]
    lines.append(describe_tree(tree))
    if hosts == 1:
        lines.append("One host: the ranks sum in its memory, nothing goes over a link.")
    else:
        is_measured = tree.is_measured()
        lines += ["", f"Allreduce between the hosts, -schedule {schedule}; times are calculated:"]
        lines.append(describe_rows(rows, is_measured))
        lines += [] if is_measured else [LINKS_UNKNOWN]
    if shown.unknown:
        lines += ["", "Where the hosts say that they stand is not known, and may change this:"]
        lines.append(shown.unknown)
    return "\n".join(lines)


class _Shown(NamedTuple):
    tree: "Tree"
    ranks: int  # of every host, at least
    source: str
    schedule: str
    unknown: str = ""  # why


def _read_tree(options: Options, environ: Mapping[str, str], reserved: list[Host]) -> _Shown:
    from ddl import _core

    said = _pairs(" ".join(options.ddl_arguments))
    schedule = said.get("schedule", "auto")
    if options.host is None and not (options.hostfile or options.rankfile or reserved):
        if options.topology:
            tree = _core.parse_tree(_read(options.topology), str(options.topology), None)
            return _Shown(tree, options.accelerators or 1, f"all of {options.topology}", schedule)
        if options.mode and (told := read_mode(options.mode)):
            ranks, *sizes = told
            count = math.prod(sizes)
            if count > MAX_HOSTS:
                raise LaunchError(f"-mode {options.mode}: more than {MAX_HOSTS} hosts")
            names = [f"host{number}" for number in range(count)]
            tree = _core.tree_of_sizes(names, sizes)
            return _Shown(tree, ranks, f"-mode {options.mode}", schedule)
    job, why_unasked = _make_job(options, environ, reserved)
    said = _pairs(job.environment.get("DDL_OPTIONS", ""))
    schedule = said.get("schedule", "auto")
    # The hosts in the library's order: by their lowest rank.
    hosts, ranks = [job.hosts[n] for n in dict.fromkeys(job.placement)], min(job.counts())
    if "topology" in said:
        tree = _core.parse_tree(_read(Path(said["topology"])), said["topology"], hosts)
        return _Shown(tree, ranks, f"connected as in {said['topology']}", schedule)
    sizes = read_mode(said["mode"]) if "mode" in said else []
    if len(sizes) > 2 and set(job.counts()) == {sizes[0]}:
        tree = _core.tree_of_sizes(hosts, sizes[1:])
        return _Shown(tree, ranks, f"grouped as in -mode {said['mode']}", schedule)
    flat = _core.tree_of_sizes(hosts, [])
    if sizes:  # the library, too, then asks nobody
        return _Shown(flat, ranks, f"side by side by -mode {said['mode']}", schedule)
    known = "side by side as far as is known"
    if why_unasked:
        return _Shown(flat, ranks, known, schedule, why_unasked)
    try:
        place_of = dict(zip(job.hosts, ask_places(job, options), strict=True))
    except LaunchError as error:
        return _Shown(flat, ranks, known, schedule, error.message)
    if not any(place_of.values()):
        return _Shown(flat, ranks, known, schedule)
    tree = _core.tree_of_places(hosts, [place_of[host] for host in hosts])
    return _Shown(tree, ranks, "grouped as they say themselves", schedule)


def _make_job(
    options: Options, environ: Mapping[str, str], reserved: list[Host]
) -> tuple[Job, str]:
    """The job, and why the hosts could not be asked for their GPUs; "" where they could."""
    try:
        ask = partial(ask_gpus, options=options, environ=environ)
        return make_job(options, environ, reserved, ask), ""
    except HostError as error:
        return make_job(options, environ, reserved), error.message


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise LaunchError(f"-topology {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LaunchError(f"-topology {path} is not a text file") from None


def _pairs(text: str) -> dict[str, str]:
    """The options of a DDL_OPTIONS text, each of which has a value."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return {option.removeprefix("-").removeprefix("-"): value for option, value in pairs}
