"""Seconds from a launcher's start to the first allreduce: ddlrun beside the bare mpiexec.

    python tests/bench/bench_start.py
    python tests/bench/bench_start.py --ranks 1 4 16 --repeat 9

Both start the same program by the environment's Python on this host, in turns: it imports ddl,
initializes it, reduces one number, and the slowest rank says when that was done. Medians of the
turns. Prints a table and writes tests/bench/out/start.json; ends with 1 where ddlrun takes more
than 1.2 times as long as mpiexec.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from bench.command import asker, end, run_command, write_report
from bench.environment import environment_with

OUT = Path(__file__).parent / "out" / "start.json"
BAR = 1.2
PROGRAM = """
import time, numpy, ddl
ddl.init()
assert ddl.allreduce(numpy.ones(1))[0] == ddl.size()
done = ddl.allreduce(numpy.array([time.time()]), "max")[0]
if ddl.rank() == 0:
    print(f"done {done!r}".replace("np.float64(", "").replace(")", ""), flush=True)
ddl.finalize()
"""


def launch(prefix: Path, launcher: str, ranks: int) -> tuple[float, float]:
    """Seconds to the first allreduce, and to the job's end."""
    words = {
        "ddlrun": ["ddlrun", "-H", f"localhost:{ranks}"],
        "mpiexec": ["mpiexec", "-n", str(ranks)],
    }[launcher]
    program, *options = words
    command = [str(prefix / "bin" / program), *options]
    environ = os.environ | {"PATH": f"{prefix / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    start = time.time()
    done = subprocess.run(
        [*command, str(prefix / "bin" / "python"), "-c", PROGRAM],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    ended = time.time() - start
    said = [line for line in done.stdout.splitlines() if "done " in line]
    if done.returncode or not said:
        raise RuntimeError(f"{launcher} with {ranks} ranks failed: {done.stderr.strip()[-2000:]}")
    return float(said[-1].partition("done ")[2]) - start, ended


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = asker(__doc__)
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--prefix", type=Path, help="the environment (default: the built one)")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    prefix = environment_with("ddlrun", options.prefix)
    table = Table(title=f"seconds to the first allreduce, median of {options.repeat}")
    for column in ("ranks", "ddlrun", "mpiexec", "ratio", "ddlrun, end", "mpiexec, end"):
        table.add_column(column, justify="right")
    rows, missed = [], []
    for ranks in options.ranks:
        found: dict[str, list[tuple[float, float]]] = {"ddlrun": [], "mpiexec": []}
        for _ in range(options.repeat):
            for launcher, times in found.items():
                times.append(launch(prefix, launcher, ranks))
        first = {name: statistics.median(t[0] for t in times) for name, times in found.items()}
        last = {name: statistics.median(t[1] for t in times) for name, times in found.items()}
        ratio = first["ddlrun"] / first["mpiexec"]
        rows.append({"ranks": ranks, "ratio": ratio, "first": first, "end": last})
        cells = (first["ddlrun"], first["mpiexec"], ratio, last["ddlrun"], last["mpiexec"])
        table.add_row(str(ranks), *(f"{cell:.2f}" for cell in cells))
        missed += [f"{ranks} ranks: {ratio:.2f} times mpiexec, bar {BAR}"] * (ratio > BAR)
    Console().print(table)
    write_report(options.out, options, prefix=prefix, rows=rows)
    end(missed)


if __name__ == "__main__":
    run_command(main)
