"""A CNN of Keras on JAX and on PyTorch by ddl, beside DistributedDataParallel on the same network.

    python tests/bench/bench_keras_backends.py
    python tests/bench/bench_keras_backends.py --prefix ENVIRONMENT --batches 4 --rounds 1

Each way trains on one rank and on several of this host, with made-up images of 32 x 32. A rank has
the same cores wherever it is: its share of those of several, also where it is the only one. XLA
computes on all cores that it finds, whatever its flags say of threads. `ddp` is PyTorch's loop
around Keras' network, on backend ddl. A way's efficiency is the images per second of all ranks, by
their number and by those of one rank. Jobs take turns, and a figure is the median of the jobs'.
Writes tests/bench/out/keras_backends.json; ends with 1 and names each backend whose efficiency is
below 0.95 of that of DistributedDataParallel.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

OUT = Path(__file__).parent / "out" / "keras_backends.json"
ROW = "Keras on JAX and on PyTorch, CNN, 2 ranks vs DistributedDataParallel"
BAR = 0.95
#: Each way's backend of Keras.
WAYS = {"jax": "jax", "torch": "torch", "ddp": "torch"}
EPOCHS = 3

Speeds = dict[tuple[str, int], float]


def run_as_rank(way: str, batches: int, batch_size: int) -> None:
    """Train; rank 0 prints the seconds of an epoch, the first one left out."""
    import ddl
    import keras
    import numpy as np

    ddl.init()
    keras.utils.set_random_seed(ddl.rank())
    images = np.random.default_rng(ddl.rank()).random((batches * batch_size, 32, 32, 3), np.float32)
    labels = np.arange(batches * batch_size) % 10
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            *(keras.layers.Conv2D(32, 3, activation="relu"), keras.layers.MaxPooling2D()),
            *(keras.layers.Conv2D(64, 3, activation="relu"), keras.layers.MaxPooling2D()),
            *(keras.layers.Flatten(), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)),
        ]
    )
    train = _train_by_ddp if way == "ddp" else _train_by_keras
    seconds = train(model, images, labels, batch_size)
    if ddl.rank() == 0:
        print(json.dumps({"seconds": statistics.median(seconds[1:])}), flush=True)


def _train_by_keras(model: Any, images: Any, labels: Any, batch_size: int) -> list[float]:
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss=loss)
    seconds = []
    for _ in range(EPOCHS):
        start = time.perf_counter()
        model.fit(images, labels, batch_size=batch_size, shuffle=False, verbose=0)
        seconds.append(time.perf_counter() - start)
    return seconds


def _train_by_ddp(model: Any, images: Any, labels: Any, batch_size: int) -> list[float]:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("ddl")
    network = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    batches = list(
        zip(
            torch.from_numpy(images).split(batch_size),
            torch.from_numpy(labels).split(batch_size),
            strict=True,
        )
    )
    seconds = []
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for x, y in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x), y).backward()
            optimizer.step()
        seconds.append(time.perf_counter() - start)
    dist.destroy_process_group()
    return seconds


def images_per_second(prefix: Path, way: str, ranks: int, options: argparse.Namespace) -> float:
    """Of all ranks of one job; RuntimeError if it fails."""
    from bench.command import answer_of_ranks

    program = [__file__, "--as-rank", way, "--batches", str(options.batches)]
    cores = share_of_cores(os.sched_getaffinity(0), ranks, options.ranks)
    command = [
        *("taskset", "-c", ",".join(map(str, cores))),
        *(prefix / "bin" / "ddlrun", "-H", f"localhost:{ranks}"),
        *(prefix / "bin" / "python", *program, "--batch-size", str(options.batch_size)),
    ]
    threads = str(len(cores) // ranks)
    env = os.environ | {"OMP_NUM_THREADS": threads, "KERAS_BACKEND": WAYS[way]}
    seconds = answer_of_ranks(command, f"{way} on {ranks} ranks", env, options.limit)["seconds"]
    return float(ranks * options.batches * options.batch_size / seconds)


def share_of_cores(cores: set[int], ranks: int, most: int) -> list[int]:
    """The cores of `ranks` ranks where each has as many as it has among `most` of them.

    Raises:
        ValueError: there are not so many.
    """
    each = len(cores) // most
    if each == 0:
        raise ValueError(f"there are {len(cores)} cores for {most} ranks; ask for fewer by --ranks")
    return sorted(cores)[: each * ranks]


def efficiency(speeds: Speeds, way: str, ranks: int) -> float:
    """The speed of some ranks, by their number and by the speed of one."""
    return speeds[way, ranks] / (ranks * speeds[way, 1])


def checks(speeds: Speeds, ranks: int) -> list[Any]:
    """What the bar demands of each backend."""
    from bench.check import Check

    ddp = efficiency(speeds, "ddp", ranks)
    what = "{} of the efficiency of DistributedDataParallel"
    shares = {way: efficiency(speeds, way, ranks) / ddp for way in WAYS if way != "ddp"}
    return [
        Check(ROW, f"Keras on {way}, {ranks} ranks", what, share, BAR)
        for way, share in shares.items()
    ]


def measure(options: argparse.Namespace) -> None:
    """All jobs, in turns; the table, the report and the bar."""
    from rich.console import Console
    from rich.table import Table

    from bench.check import missed
    from bench.command import end, write_report
    from bench.environment import environment_with, research

    prefix = environment_with("ddlrun", options.prefix or research())
    runs: dict[tuple[str, int], list[float]] = {}
    for turn in range(options.rounds):
        for way in WAYS:
            for ranks in (1, options.ranks):
                speed = images_per_second(prefix, way, ranks, options)
                print(f"turn {turn + 1}: {way}, {ranks} ranks: {speed:.0f} images/s", flush=True)
                runs.setdefault((way, ranks), []).append(speed)
    speeds = {run: statistics.median(found) for run, found in runs.items()}
    table = Table(
        "way", "1 rank", f"{options.ranks} ranks", "efficiency", title="images per second"
    )
    for way in WAYS:
        cells = (speeds[way, 1], speeds[way, options.ranks])
        share = efficiency(speeds, way, options.ranks)
        table.add_row(way, *(f"{cell:.0f}" for cell in cells), f"{share:.2f}")
    Console(width=100).print(table)
    rows = [{"way": way, "ranks": n, "images_per_second": runs[way, n]} for way, n in runs]
    write_report(OUT, options, prefix=prefix, runs=rows)
    end(missed(checks(speeds, options.ranks)))


def main() -> None:
    """Measure, or train as one of the ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prefix", type=Path, help="an environment with ddl-jax and PyTorch")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batches", type=int, default=30, help="in an epoch; 3 epochs a job")
    parser.add_argument("--batch-size", type=int, default=32, help="on each rank")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=int, default=600, help="end a job after these seconds")
    parser.add_argument("--as-rank", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        return run_as_rank(options.as_rank, options.batches, options.batch_size)
    from bench.command import run_command

    run_command(lambda: measure(options))


if __name__ == "__main__":
    main()
