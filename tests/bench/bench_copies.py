"""Copies between GPU and pinned host memory: out, back and both at once, idle and under load.

    python tests/bench/bench_copies.py
    python tests/bench/bench_copies.py --sizes 4M 64M --rounds 20

What LMS's R(M) stands on: B is the rate of one direction while the other is busy and the GPU
computes. The load is a stream of bfloat16 matrix products; how much the copies slow it down is
reported too. Needs torch with CUDA and a GPU; without it says so and measures nothing. Medians of
the rounds. Prints a table and writes tests/bench/out/copies.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import parse_size, run_command, write_report

OUT = Path(__file__).parent / "out" / "copies.json"
WAYS = {"out": (True, False), "back": (False, True), "both": (True, True), "none": (False, False)}
EDGE, PRODUCTS = 8192, 24  # of the matrices; how many make the load
PIECES = 16  # copies in a row in each direction


def measure(torch: Any, nbytes: int, ways: tuple[bool, bool], load: bool) -> dict[str, float]:
    """Seconds of all copies of each direction, and of the load; each where there is any."""
    there = torch.empty(2, nbytes, dtype=torch.uint8, device="cuda")
    here = [torch.empty(nbytes, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    matrix = torch.randn(EDGE, EDGE, dtype=torch.bfloat16, device="cuda")
    result = torch.empty_like(matrix)
    streams = {name: torch.cuda.Stream() for name in ("load", "out", "back")}
    wanted = {"load": load, "out": ways[0], "back": ways[1]}
    spans = {}
    torch.cuda.synchronize()
    for name, stream in streams.items():
        if not wanted[name]:
            continue
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            first.record(stream)
            for _ in range(PRODUCTS if name == "load" else PIECES):
                if name == "load":
                    torch.mm(matrix, matrix, out=result)
                elif name == "out":
                    here[0].copy_(there[0], non_blocking=True)
                else:
                    there[1].copy_(here[1], non_blocking=True)
            last.record(stream)
        spans[name] = (first, last)
    torch.cuda.synchronize()
    return {name: first.elapsed_time(last) / 1e3 for name, (first, last) in spans.items()}


def main() -> None:
    """The command line."""
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sizes = [*map(parse_size, ["1M", "16M", "64M", "256M"])]
    ask.add_argument("--sizes", nargs="+", type=parse_size, default=sizes)
    ask.add_argument("--rounds", type=int, default=9)
    ask.add_argument("--out", type=Path, default=OUT)
    options = ask.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"not measured: {error}")
        return
    if not torch.cuda.is_available():
        print("not measured: torch sees no GPU")
        return
    print(torch.cuda.get_device_name())
    print(
        f"{'bytes':>10} {'copies':>6} {'load':>5} {'out GB/s':>9} {'back GB/s':>9} {'load ms':>8}"
    )
    rows = []
    for nbytes in options.sizes:
        for way, ways in WAYS.items():
            for load in (False, True):
                if not (load or any(ways)):
                    continue
                rounds = [measure(torch, nbytes, ways, load) for _ in range(options.rounds + 2)][2:]
                found = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
                rows.append({"bytes": nbytes, "copies": way, "load": load, "seconds": found})
                rates = [
                    f"{nbytes * PIECES / found[name] / 1e9:9.1f}" if name in found else " " * 9
                    for name in ("out", "back")
                ]
                took = f"{found['load'] * 1e3:8.2f}" if load else ""
                print(f"{nbytes:10} {way:>6} {'yes' if load else 'no':>5} {' '.join(rates)} {took}")
    write_report(options.out, options, gpu=torch.cuda.get_device_name(), rows=rows)


if __name__ == "__main__":
    run_command(main)
