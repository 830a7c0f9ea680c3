"""`python -m lms MODEL`: plans without a GPU.

python -m lms my_models:make_step --limit 40GiB             # the plan; see `lms.dry_run`
python -m lms my_models:make_step --batch 32 --gpu H100     # does it fit; see `lms.answer`
python -m lms LlamaConfig --batch 8 --gpu H100 --set num_hidden_layers=16
"""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lms
from lms.answer import Answer, does_it_fit
from lms.configurations import step_of
from lms.devices.gpus import GPUS, Gpu, gpu_named
from lms.plot import write_plot
from lms.sizes import parse_size


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = argparse.ArgumentParser(
        prog="python -m lms", description="Plans the swaps of LMS, without a GPU."
    )
    ask.add_argument(
        "model",
        help="MODULE:FUNCTION, which makes a function that trains one step (with --batch, of so "
        "many samples); or a class of configuration in transformers, such as LlamaConfig",
    )
    ask.add_argument("--limit", help="bytes on the device, such as 40GiB; default: the GPU's")
    ask.add_argument("--gpu", help=f"one of {', '.join(GPUS)}; default: an H100's speed")
    ask.add_argument("--batch", type=int, help="samples: answers whether the model fits")
    ask.add_argument("--largest-batch", action="store_true", help="looks for that, too")
    ask.add_argument("--length", type=int, help="tokens of a sequence, for a configuration")
    ask.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the configuration, such as num_hidden_layers=16; may be repeated",
    )
    ask.add_argument("--memory", help="bytes that the device has; default: the limit")
    ask.add_argument(
        "--recompute-operations",
        action="store_true",
        help="single operations may be computed again, where that is faster than copying; with "
        "--batch that is tried anyway",
    )
    ask.add_argument("--json", action="store_true", help="the answer, or the report, as JSON")
    ask.add_argument("--plot", type=Path, help="write the curves of memory to this SVG")
    return ask.parse_args()


def useless(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Options that would change nothing, and what each is for."""
    is_answer, is_function = options.batch is not None, ":" in options.model
    of_configurations = "configurations, not MODULE:FUNCTION"
    return [
        (name, purpose)
        for name, is_given, is_useful, purpose in (
            ("--largest-batch", options.largest_batch, is_answer, "answers: give --batch"),
            ("--memory", options.memory is not None, not is_answer, "plans: leave out --batch"),
            ("--length", options.length is not None, not is_function, of_configurations),
            ("--set", bool(options.set), not is_function, of_configurations),
        )
        if is_given and not is_useful
    ]


def function_named(name: str) -> Callable[..., Any]:
    """MODULE:FUNCTION, from the current folder too.

    Raises:
        LMSError: there is none.
    """
    module, _, function = name.partition(":")
    sys.path.insert(0, "")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise lms.LMSError(f"there is no function {name}: {error}") from error
    return found


def setting(text: str) -> tuple[str, Any]:
    """The name and the value of NAME=VALUE; what is no Python value is text.

    Raises:
        LMSError: it has no value.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise lms.LMSError(f"--set {text} is no NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def answered(options: argparse.Namespace) -> Answer:
    """Whether the model fits."""
    if options.batch < 1:
        raise lms.LMSError(f"--batch must be at least one sample, not {options.batch}")
    gpu = gpu_named(options.gpu) if options.gpu else Gpu("a GPU like an H100", 0, lms.Speed())
    limit = gpu.limit if options.limit is None else parse_size(options.limit)
    if ":" in options.model:
        make = function_named(options.model)
        return does_it_fit(
            lambda batch, _: make(batch),
            options.batch,
            gpu,
            limit,
            can_page=False,
            largest=options.largest_batch,
        )
    settings = dict(map(setting, options.set))
    make_step = step_of(options.model, settings, options.length)
    return does_it_fit(
        make_step, options.batch, gpu, limit, can_page=True, largest=options.largest_batch
    )


def planned(options: argparse.Namespace) -> lms.Report:
    """The plan of a function's step."""
    return lms.plan(
        function_named(options.model),
        options.limit,
        memory=options.memory,
        speed=gpu_named(options.gpu).speed if options.gpu else None,
        recompute_operations=options.recompute_operations,
    )


def main() -> None:
    """The command line. A mistake is one line, with status 1; so is a model that does not fit."""
    options = parse_options()
    found: Answer | lms.Report
    try:
        if options.limit is None and options.gpu is None:
            raise lms.LMSError("there is no limit: give --limit, or a --gpu")
        if options.batch is None and (options.limit is None or ":" not in options.model):
            raise lms.LMSError("--gpu and configurations need the samples of a batch: give --batch")
        for option, purpose in useless(options):
            raise lms.LMSError(f"{option} is for {purpose}")
        found = planned(options) if options.batch is None else answered(options)
    except lms.LMSError as error:
        sys.exit(f"error: {error}")
    print(found.as_json() if options.json else found)
    report = found.best if isinstance(found, Answer) else found
    if options.plot and report is not None:
        write_plot(report, options.plot)
        print(f"written: {options.plot}", file=sys.stderr)
    if report is None:
        sys.exit(1)


if __name__ == "__main__":
    main()
