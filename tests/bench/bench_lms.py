"""Large Model Support: throughput under a limit as a share of what the copies allow.

    python tests/bench/bench_lms.py                          # simulated H100 on PCIe 5
    python tests/bench/bench_lms.py --device cuda            # a real GPU
    python tests/bench/bench_lms.py --cases gpt-4096 --reach

Full-size models, by LMS at several ratios of in-core demand D and limit M, and by what users pick
today: `save_on_cpu` (copies in the compute queue), asynchronous offload (on a side stream, fetched
at use), checkpointing. Once more by LMS where it may compute layers again (`lms.recompute`), which
must be as fast as the faster of LMS and checkpointing. And by LMS where it may repeat single
operations (`recompute_operations`), beside the bounds that a linear program gives for the same
trace and costs, with and without repeating (`lms_bound.py`). The best that copying can reach is
R(M) = (Tf + Tb) / (max(Tf, S/B) + max(Tb, S/B)), where S = D - M leaves and returns at B bytes/s.
The simulated device is that of `lms`: a clock, not hardware. Prints a table, writes
tests/bench/out/lms.json, and ends with 1 where a row falls short of its bar.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import asker, end, run_command, write_report

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "recipes/lms-torch/src"
CASES = ("gpt-4096", "resnet-50", "resnet-152", "unet-3d")
SHARE, FITS = 0.90, 0.98  # of R(M); of plain, when everything fits
SAVE_ON_CPU, ASYNC, AGAIN = 1.5, 1.15, 1.0  # times the throughput of each
#: Shares of in-core's speed to keep where single operations are repeated, as reached.
REPEATED = {
    ("gpt-4096", 2): 0.97,
    ("gpt-4096", 4): 0.92,
    ("resnet-50", 1.5): 0.94,
    ("resnet-50", 2): 0.90,
    ("resnet-50", 4): 0.75,
    ("unet-3d", 1.5): 0.93,
    ("unet-3d", 2): 0.53,
}
MIXED = 0.99  # of the better of LMS and, where that fits, checkpointing
REACH = 4.9  # times the batch of in-core, ResNet-50
GIB = 1 << 30


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = asker(__doc__)
    ask.add_argument("--cases", nargs="+", choices=["mlp", *CASES], default=list(CASES))
    ask.add_argument("--device", choices=["simulated", "cuda"], default="simulated")
    ask.add_argument("--ratios", nargs="+", type=float, default=[0.95, 1.5, 2, 4], help="D/M")
    ask.add_argument("--reach", action="store_true", help="only the largest batch of ResNet-50")
    ask.add_argument("--python", type=Path, help="one with torch; default: the built env's")
    ask.add_argument("--out", type=Path, default=HERE / "out" / "lms.json")
    return ask.parse_args()


def python_of_release() -> Path:
    """That of the built environment, which a machine with `--python` has not."""
    from bench.environment import built

    return built() / "bin" / "python"


def cell(ask: argparse.Namespace, case: str, *words: str) -> dict[str, Any]:
    """What `lms_cell.py` found for a model."""
    python = ask.python or python_of_release()
    command = [str(python), str(HERE / "lms_cell.py"), case, "--device", ask.device, *words]
    # The environment's own lms has what is compiled against CUDA; the sources are this tree's.
    sources = [SOURCES] if ask.device == "simulated" else []
    paths = [*map(str, [*sources, HERE]), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise ValueError(f"{case}: {(done.stderr.strip() or 'no output').splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def short(found: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """Which bars a row misses."""
    if "no_plan" in row:
        return []
    name, speed, missed = f"{found['case']} D/M {row['ratio']:g}", row["throughput"], []
    if row["peak"] > row["limit"]:
        missed.append(f"{name}: {row['peak'] - row['limit']} bytes above the limit")
    if row["ratio"] < 1:
        return missed + [f"{name}: {speed:.3f} of plain"] * (speed < FITS)
    bars = {"save_on_cpu": SAVE_ON_CPU, "async_offload": ASYNC}
    if found["case"] == "gpt-4096" and row["ratio"] <= 2:
        bars["checkpointing"] = AGAIN
    for other, bar in bars.items():
        times = speed / found[other]["throughput"]
        missed += [f"{name}: {times:.2f} times {other}, bar {bar:g}"] * (times < bar)
    mixed, again = row["mixed"], found["checkpointing"]
    if mixed["peak"] > row["limit"]:
        missed.append(f"{name}, mixed: {mixed['peak'] - row['limit']} bytes above the limit")
    single = row["repeated"]
    if single["peak"] > row["limit"]:
        missed.append(f"{name}, repeated: {single['peak'] - row['limit']} bytes above the limit")
    bar = REPEATED.get((found["case"], row["ratio"]), 0.0)
    reached = single["throughput"]
    missed += [f"{name}: repeated {reached:.3f}, bar {bar:g}"] * (reached < bar)
    fits = again["peak"] <= row["limit"]
    times = mixed["throughput"] / max(speed, again["throughput"] if fits else 0.0)
    missed += [f"{name}: mixed {times:.3f} of the better way, bar {MIXED:g}"] * (times < MIXED)
    return missed + [f"{name}: {row['share']:.3f} of R(M)"] * (row["share"] < SHARE)


def tables(ask: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """All models; what was found, and which bars were missed."""
    table = Table(title=f"throughput by in-core's, {ask.device} device")
    for column in ("model", "D", "D/M", "R(M)", "lms", "of R(M)", "predicted"):
        table.add_column(column)
    for column in ("LP: moves", "repeated", "LP: repeated", "of LP"):
        table.add_column(column)
    for column in ("mixed", "save_on_cpu", "async", "checkpointing"):
        table.add_column(column)
    everything, missed = [], []
    for case in ask.cases:
        found = cell(ask, case, "--ratios", *map(str, ask.ratios))
        everything.append(found)
        for row in found["lms"]:
            head = [case, f"{found['demand'] / GIB:.1f} GiB", f"{row['ratio']:g}"]
            if "no_plan" in row:
                table.add_row(*head, "", f"no plan: {row['no_plan'] / GIB:.2f} GiB short")
                continue
            again, mixed, single = found["checkpointing"], row["mixed"], row["repeated"]
            table.add_row(
                *head,
                f"{row['best']:.3f}",
                f"{row['throughput']:.3f}",
                f"{row['share']:.3f}",
                f"{row['predicted'] / row['measured'] - 1:+.1%}",
                f"{single['bound_moves']:.3f}",
                f"{single['throughput']:.3f} ({single['storages']})",
                f"{single['bound']:.3f}",
                f"{single['throughput'] / single['bound']:.3f}",
                f"{mixed['throughput']:.3f} ({mixed['again']} of {mixed['layers']})",
                f"{found['save_on_cpu']['throughput']:.3f}",
                f"{found['async_offload']['throughput']:.3f}",
                f"{again['throughput']:.3f}" + " (does not fit)" * (again["peak"] > row["limit"]),
            )
            missed += short(found, row)
    Console(width=150).print(table)
    return everything, missed


def main() -> None:
    """Runs it."""
    ask = parse_options()
    if ask.reach:
        found = cell(ask, "resnet-50", "--reach", str(16 * GIB))
        times = found["lms"] / found["in_core"]
        print(f"ResNet-50 in 16 GiB: batch {found['in_core']} in-core, {found['lms']} under LMS:")
        print(f"{times:.2f} times, at {found['speed']:.0%} of the speed")
        for name, batch in found["mixed"].items():
            print(f"computing layers again, batch {name}: {batch:.0%} of the speed")
        write_report(ask.out.with_stem("lms-reach"), ask, found=found)
        end([f"reach {times:.2f}, bar {REACH}"] * (times < REACH))
    else:
        everything, missed = tables(ask)
        write_report(ask.out, ask, found=everything)
        end(missed)


if __name__ == "__main__":
    run_command(main)
