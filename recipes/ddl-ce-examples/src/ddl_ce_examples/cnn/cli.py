"""The program `ddl-cnn-benchmark`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from ddl_ce_examples import __version__
from ddl_ce_examples.cnn import models, results, updates
from ddl_ce_examples.cnn.errors import BenchmarkError

EPILOG = f"""\
models: {", ".join(models.NETWORKS)}

Examples:
  ddlrun -H localhost:2 ddl-cnn-benchmark --model=resnet50 --batch_size=8 --num_batches=10
  ddl-cnn-benchmark --table results.jsonl

Exit status: 0; 2 something was wrong with the arguments, or the results cannot be written.
"""
RULE = "-" * 64


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Ends by what `main` makes of it."""
        raise BenchmarkError(message)


def parser() -> argparse.ArgumentParser:
    """The command line; the names are those of tf_cnn_benchmarks."""
    ask = Parser(
        prog="ddl-cnn-benchmark",
        description="Train a network on made-up images and say how many it takes per second.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    ways = ", ".join(updates.UPDATES)
    ask.add_argument(
        "--model",
        choices=models.NETWORKS,
        default="resnet50",
        metavar="NAME",
        help="default: resnet50; see below",
    )
    ask.add_argument(
        "--variable_update",
        choices=updates.UPDATES,
        default="ddl",
        metavar="WAY",
        help=f"how ranks stay alike: {ways} (each rank for itself); default: ddl",
    )
    ask.add_argument(
        "--batch_size", type=whole(1), default=32, metavar="N", help="on each rank; default: 32"
    )
    ask.add_argument("--num_batches", type=whole(1), default=100, metavar="N", help="default: 100")
    ask.add_argument(
        "--num_warmup_batches",
        type=whole(1),
        default=3,
        metavar="N",
        help="before, not measured; default: 3",
    )
    ask.add_argument(
        "--image_size", type=whole(1), metavar="PIXELS", help="default: the model's own"
    )
    ask.add_argument(
        "--display_every", type=whole(1), default=1, metavar="N", help="batches; default: 1"
    )
    ask.add_argument("--results", type=Path, metavar="FILE", help="add the result to this file")
    ask.add_argument(
        "--table", type=Path, metavar="FILE", help="only print the scaling table of such a file"
    )
    ask.add_argument("--version", action="version", version=f"ddl-cnn-benchmark {__version__}")
    return ask


def whole(least: int, most: int = 10**6) -> Callable[[str], int]:
    """A parser of whole numbers within these bounds."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text} is not a whole number from {least} to {most}")
        return int(text)

    return parse


def say(text: str) -> None:
    """Prints a line at once."""
    print(text, flush=True)


def silent(text: str) -> None:
    """Says nothing, on ranks other than the first."""


def show_table(path: Path) -> None:
    """Prints the scaling table of a file of results."""
    found = results.read(path)
    if not found:
        raise BenchmarkError(f"{path}: there are no results in it yet")
    say(results.table(found))


def run(args: argparse.Namespace) -> None:
    """Trains on all ranks; the first one prints, and adds the result to the file."""
    network, image_size = models.find(args.model, args.image_size)
    if args.results and updates.launched()[0] == 0:
        results.check(args.results)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    update = updates.start(args.variable_update)
    show = say if update.rank == 0 else silent
    show(f"Model:       {args.model}, images of {image_size} x {image_size}")
    show(f"Batch size:  {args.batch_size * update.size} global, {args.batch_size} per rank")
    show(f"Ranks:       {update.size}, variable_update {args.variable_update}")
    show("Step\tImg/sec\ttotal_loss")
    from ddl_ce_examples.cnn.training import Batches, train

    batches = Batches(
        args.batch_size, args.num_batches, args.num_warmup_batches, args.display_every
    )
    speed = train(network, image_size, batches, update, show)
    show(f"{RULE}\ntotal images/sec: {speed:.2f}\n{RULE}")
    if args.results and update.rank == 0:
        result = results.Result(
            args.model,
            image_size,
            args.batch_size,
            args.variable_update,
            update.size,
            args.num_batches,
            speed,
        )
        results.add(args.results, result)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark, or prints the table; the exit status."""
    try:
        args = parser().parse_args(argv)
        if args.table:
            show_table(args.table)
        else:
            run(args)
    except BenchmarkError as error:
        if updates.launched()[0] == 0:  # all ranks have the same to say
            print(f"ddl-cnn-benchmark: error: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
