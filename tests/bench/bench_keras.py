"""Keras on several ranks of this machine: ddl, Horovod on each of its back-ends, and
MultiWorkerMirroredStrategy.

    python tests/bench/bench_keras.py
    python tests/bench/bench_keras.py --ranks 2 --models lenet --repetitions 1

Each run is one of ddl-cnn-benchmark in the environment, on made-up images of 32 x 32: `lenet`
computes and communicates, `trivial` is hardly more than its 16 MB of gradients. Repetitions take
turns over the ways. Prints a line for each run, then the table of medians, and writes both as JSON;
ends with 1 and names each row in which ddl is slower than the best of the others, or Horovod on DDL
slower than on MPI or Gloo.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import asker, end, run_command, write_report
from bench.environment import environment_with
from ddlce.smoke import clean_environment

OUT = Path(__file__).parent / "out" / "keras.json"
OPERATIONS = "HOROVOD_CPU_OPERATIONS"
WAYS = {
    "ddl": ("ddl", {}),
    "horovod-ddl": ("horovod", {OPERATIONS: "DDL"}),
    "horovod-mpi": ("horovod", {OPERATIONS: "MPI"}),
    "horovod-gloo": ("horovod", {OPERATIONS: "GLOO"}),
    "distributed": ("distributed", {}),
}
"""Each way's --variable_update, and its environment."""
PEERS = {
    "ddl": ("horovod-ddl", "horovod-mpi", "horovod-gloo", "distributed"),
    "horovod-ddl": ("horovod-mpi", "horovod-gloo"),
}
BAR = 1.0
"""How many times as fast as the best of their peers ours must be."""


@dataclass(frozen=True)
class Training:
    """One run. `speed` is in images per second, of all ranks together."""

    model: str
    ranks: int
    way: str
    speed: float


def parse_options() -> argparse.Namespace:
    """The command line."""
    ask = asker(__doc__)
    ask.add_argument("--models", nargs="+", default=["lenet", "trivial"])
    ask.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    ask.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    ask.add_argument("--repetitions", type=int, default=3)
    ask.add_argument("--batches", type=int, default=30, help="in a run, by the clock")
    ask.add_argument("--batch-size", type=int, default=16, help="on each rank")
    ask.add_argument("--limit", type=int, default=240, help="end a run after these seconds")
    ask.add_argument("--prefix", type=Path, help="the environment; default: the built one")
    ask.add_argument("--out", type=Path, default=OUT, help="the JSON")
    return ask.parse_args()


Rows = dict[tuple[str, int], dict[str, list[float]]]


def rows_of(runs: list[Training]) -> Rows:
    """The speeds by model and number of ranks, in each by way."""
    found: Rows = {}
    for run in runs:
        found.setdefault((run.model, run.ranks), {}).setdefault(run.way, []).append(run.speed)
    return found


def gain(ways: dict[str, list[float]], ours: str) -> float:
    """How many times as fast ours is as the best of its peers that ran, by medians; else NaN."""
    peers = [statistics.median(ways[peer]) for peer in PEERS[ours] if peer in ways]
    return statistics.median(ways[ours]) / max(peers) if peers and ours in ways else math.nan


def shortfalls(runs: list[Training]) -> list[str]:
    """A line for every row that is not as it must be."""
    return [
        f"{model}, {ranks} ranks: {ours} is {gain(ways, ours):.2f} x the best, must be {BAR} x"
        for (model, ranks), ways in rows_of(runs).items()
        for ours in PEERS
        if {ours, *PEERS[ours]} <= ways.keys() and not gain(ways, ours) >= BAR
    ]


def make_table(runs: list[Training]) -> Table:
    """A section for each model and number of ranks, a row for each way."""
    table = Table("way", "images/s", "min", "max", "runs", "gain")
    for column in table.columns[1:]:
        column.justify = "right"
    for (model, ranks), ways in rows_of(runs).items():
        table.add_row(f"[bold]{model}, {ranks} ranks[/]")
        for way, speeds in ways.items():
            figures = (statistics.median(speeds), min(speeds), max(speeds))
            ratio = gain(ways, way) if way in PEERS else math.nan
            shown = "" if math.isnan(ratio) else f"{ratio:.2f}"
            table.add_row(way, *(f"{x:.1f}" for x in figures), str(len(speeds)), shown)
        table.add_section()
    return table


def train(model: str, ranks: int, way: str, prefix: Path, ask: argparse.Namespace) -> Training:
    """One run; RuntimeError if it fails."""
    update, environment = WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        command = [
            *(prefix / "bin" / "ddlrun", "-H", f"localhost:{ranks}", "-timeout", ask.limit),
            *(["-tf_config"] if way == "distributed" else []),
            *(prefix / "bin" / "python", "-m", "ddl_ce_examples.cnn.cli"),
            *(f"--variable_update={update}", f"--model={model}", "--image_size=32"),
            *(f"--batch_size={ask.batch_size}", f"--num_batches={ask.batches}"),
            *("--num_warmup_batches=5", f"--results={results}"),
        ]
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            env=clean_environment(prefix, os.environ) | environment,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{model}, {ranks} ranks, {way} failed:\n{done.stderr[-3000:]}")
        speed = json.loads(results.read_text())["images_per_second"]
    return Training(model, ranks, way, speed)


def run_all(ask: argparse.Namespace) -> Iterator[Training]:
    """All runs; repetitions take turns over the ways."""
    prefix = environment_with("ddlrun", ask.prefix)
    for model, ranks in product(ask.models, ask.ranks):
        for _, way in product(range(ask.repetitions), ask.ways):
            yield train(model, ranks, way, prefix, ask)


def main() -> None:
    """Train, print the table, write the JSON; also of a run that is interrupted."""
    ask = parse_options()
    runs: list[Training] = []
    try:
        for run in run_all(ask):
            print(
                f"{run.model}, {run.ranks} ranks, {run.way}: {run.speed:.1f} images/s", flush=True
            )
            runs.append(run)
    finally:
        if runs:
            Console(width=100).print(make_table(runs))
            write_report(ask.out, ask, runs=[asdict(run) for run in runs])
    end(shortfalls(runs))


if __name__ == "__main__":
    run_command(main)
