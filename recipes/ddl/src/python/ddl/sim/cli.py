"""`ddl-sim`: how long an allreduce between hosts would take on a cluster, by calculation.

    ddl-sim -topology racks.yaml
    ddl-sim -preset summit-954 -size 64K -size 100M
    ddl-sim -topology racks.yaml -schedule halving -json

The library's own plans are made for the cluster and their cost is added up; nothing is run, so this
is a SIMULATION. `-preset` names a cluster that is built in.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import NoReturn

from ddl import _core
from ddl.sim.presets import PRESETS, Preset
from ddl.sim.report import (
    LINKS_UNKNOWN,
    describe_rows,
    describe_tree,
    make_rows,
    parse_size,
)
from ddl.sim.training import Training, efficiency

SIZES = [64 << 10, 4 << 20, 64 << 20]


class Parser(argparse.ArgumentParser):
    """Every option as -option and --option, and errors of one line, as in ddlrun."""

    def add(self, name: str, **settings: object) -> None:
        """An option in both forms."""
        self.add_argument(f"-{name}", f"--{name}", **settings)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Ends with status 2."""
        print(f"ddl-sim: error: {message}", file=sys.stderr)
        sys.exit(2)


def above_zero(text: str) -> float:
    """A number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e12:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return number


def size(text: str) -> int:
    """A number of bytes."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def ranks(text: str) -> int:
    """A number of ranks."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1024):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of ranks from 1 to 1024")
    return int(text)


def make_parser() -> Parser:
    """The options."""
    parser = Parser(
        prog="ddl-sim",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add("topology", type=Path, metavar="FILE", help="the cluster, as ddlrun -topology")
    parser.add("preset", choices=list(PRESETS), help="a cluster that is built in")
    parser.add("size", type=size, action="append", help="4096, 64K, 4M, …; may be repeated")
    parser.add("schedule", default="auto", help="auto, direct, halving, radix:R, ring or tree")
    parser.add("ranks_per_host", type=ranks, metavar="N", help="ranks that share a host's link")
    parser.add("goodput", type=above_zero, metavar="SHARE", help="payload share of a bandwidth")
    parser.add("latency", type=above_zero, metavar="US", help="of hosts' links without one")
    parser.add("overhead", type=above_zero, metavar="US", help="a rank's time for each message")
    parser.add("processing", type=above_zero, metavar="NS", help="a rank's time for each byte")
    parser.add("within_host", type=above_zero, metavar="GB/S", help="how fast a host sums its own")
    parser.add("chunk", type=size, metavar="SIZE", help="of the chunking, at most; default 128K")
    parser.add("json", action="store_true", help="print JSON")
    return parser


def read_cluster(options: argparse.Namespace) -> tuple[Preset, str]:
    """The cluster asked for, and where it is from. ValueError: there is none, or two."""
    if (options.topology is None) == (options.preset is None):
        raise ValueError("give -topology FILE or -preset NAME, one of them")
    if options.preset:
        return PRESETS[options.preset](), f"preset {options.preset}"
    try:
        text = options.topology.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read {options.topology}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{options.topology} is not a text file") from None
    return Preset(text, ranks_per_host=1), str(options.topology)


def make_wire(tree: _core.Tree, preset: Preset, options: argparse.Namespace) -> _core.Wire:
    """The library's assumptions, changed by the preset's values and then by the options'."""
    wire = tree.usual_wire()
    for name, value in preset.wire.items():
        setattr(wire, name, value)
    units = {"goodput": 1.0, "latency": 1e-6, "overhead": 1e-6, "processing": 1e-9}
    for name, unit in units.items():
        if (given := getattr(options, name)) is not None:
            setattr(wire, name, given * unit)
    if options.within_host is not None:
        wire.within_host = 1e-9 / options.within_host
    return wire


def training_text(training: Training, allreduce: float) -> str:
    """The effect of the allreduce on training, for people."""
    off, on = (100 * efficiency(training, allreduce, overlap) for overlap in (False, True))
    return (
        f"training: {1e3 * training.compute:.0f} ms of computing an iteration, allreduce of "
        f"{training.gradient / 1e6:.0f} MB in {1e3 * allreduce:.1f} ms:\n"
        f"  scaling efficiency {off:.1f}% without overlap, {on:.1f}% with"
    )


def simulate(options: argparse.Namespace) -> str:
    """The report. ValueError: the input is wrong."""
    preset, source = read_cluster(options)
    tree = _core.parse_tree(preset.topology, source, None)
    if not tree.children:
        raise ValueError(f"{source}: one host alone has nobody to exchange with")
    wire = make_wire(tree, preset, options)
    chunking = _core.usual_chunking(tree, options.ranks_per_host or preset.ranks_per_host)
    if options.chunk is not None:
        chunking.most_chunk = options.chunk
        chunking.least_chunk = min(chunking.least_chunk, options.chunk)
    training = preset.training
    sizes = options.size or [*SIZES, *([training.gradient] if training else [])]
    rows = make_rows(tree, sizes, options.schedule, chunking, wire)
    is_measured = tree.is_measured()
    trained = [row.seconds for row in rows if training and row.nbytes == training.gradient]
    if options.json:
        report = {
            "simulation": True,
            "source": source,
            "hosts": tree.num_hosts(),
            "ranks_per_host": chunking.lanes,
            "bandwidths_known": is_measured,
            "assumptions": preset.assumptions,
            "sizes": [row.as_dict() for row in rows],
        }
        if training and trained:
            report["efficiency"] = {
                "without_overlap": efficiency(training, trained[0], overlap=False),
                "with_overlap": efficiency(training, trained[0], overlap=True),
            }
        return json.dumps(report, indent=1)
    parts = [
        f"SIMULATION, nothing is measured: {source}, {tree.num_hosts()} hosts x "
        f"{chunking.lanes} rank(s)",
        describe_tree(tree),
        *(f"assumed: {line}" for line in preset.assumptions),
        describe_rows(rows, is_measured),
        *([] if is_measured else [LINKS_UNKNOWN]),
        *(training_text(training, seconds) for seconds in trained[:1] if training),
    ]
    return "\n".join(parts)


def main(arguments: list[str] | None = None) -> int:
    """Print the report; return the exit status."""
    options = make_parser().parse_args(arguments)
    try:
        print(simulate(options))
    except ValueError as error:
        print(f"ddl-sim: error: {error}", file=sys.stderr)
        return 2
    return 0
