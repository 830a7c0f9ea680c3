"""`python -m lms MODULE:FUNCTION --limit SIZE`: a plan without a GPU; see `lms.dry_run`."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

import lms
from lms.plot import write_plot


def main() -> None:
    """The command line. A mistake is one line, with status 1."""
    ask = argparse.ArgumentParser(
        prog="python -m lms", description="Plans the swaps of LMS, without a GPU."
    )
    ask.add_argument("step", help="MODULE:FUNCTION, which makes a function that trains one step")
    ask.add_argument("--limit", required=True, help="bytes on the device, such as 40GiB")
    ask.add_argument("--memory", help="bytes that the device has; default: the limit")
    ask.add_argument(
        "--recompute-operations",
        action="store_true",
        help="single operations may be computed again, where that is faster than copying",
    )
    ask.add_argument("--json", action="store_true", help="the report as JSON")
    ask.add_argument("--plot", type=Path, help="write the curves of memory to this SVG")
    options = ask.parse_args()
    module, _, function = options.step.partition(":")
    sys.path.insert(0, "")
    try:
        try:
            make_step = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError, ValueError) as error:
            raise lms.LMSError(f"there is no function {options.step}: {error}") from error
        report = lms.plan(
            make_step,
            options.limit,
            memory=options.memory,
            recompute_operations=options.recompute_operations,
        )
    except lms.LMSError as error:
        sys.exit(f"error: {error}")
    print(report.as_json() if options.json else report)
    if options.plot:
        write_plot(report, options.plot)
        print(f"written: {options.plot}", file=sys.stderr)


if __name__ == "__main__":
    main()
