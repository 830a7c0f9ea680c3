"""Runs one of the programs as a rank of the suite: `... run PROGRAM --journal DIR`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence

import numpy as np

from ddl_ce_smoke.rank import Rank, journal
from ddl_ce_smoke.research import PROGRAMS
from ddl_ce_smoke.train import add_journal_options


def save(train: Callable[[], np.ndarray], doc: str | None) -> None:
    """The main program of each: saves rank 0's numbers to the file that the command line names."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", help="a file for NumPy, .npy")
    target = parser.parse_args().target
    numbers = train()
    if Rank.from_environment().index == 0:
        np.save(target, numbers)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on one rank, whose journal gets rank 0's numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=[program.module for program in PROGRAMS])
    add_journal_options(parser)
    args = parser.parse_args(argv)
    rank = Rank.from_environment()
    with journal(args.journal, rank) as record:
        record.write("at", what=f"importing {args.program}")
        program = importlib.import_module(f"ddl_ce_smoke.research.{args.program}")
        record.write("at", what="training")
        numbers = program.train()
        if rank.index == 0:
            record.write("numbers", values=[float(number) for number in numbers])
    return 0


if __name__ == "__main__":
    sys.exit(main())
