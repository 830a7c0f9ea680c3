"""Plots of what bench_lab and bench_host have written: tests/bench/out/lab.svg and host.svg.

    python tests/bench/plots.py [--out FOLDER]

matplotlib comes from pip, pinned by hash, into an environment of its own; where it cannot be had,
this says so and draws nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import asker, run_command
from bench.lab.peers.install import LAB
from support.pip import Unavailable, pip_prefix

HERE = Path(__file__).parent


def main() -> None:
    """Draws what there is."""
    ask = asker(__doc__)
    ask.add_argument("--out", type=Path, default=HERE / "out", help="the folder with the JSON")
    folder = ask.parse_args().out
    files = [folder / name for name in ("lab.json", "host.json") if (folder / name).exists()]
    if not files:
        print(f"nothing to draw: there is no lab.json and no host.json in {folder}")
        return
    try:
        python = pip_prefix("plots") / "bin" / "python"
    except Unavailable as error:
        print(f"not drawn: {error}")
        return
    command = [str(python), str(LAB / "workers" / "draw.py"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the plots: {done.stderr.strip().splitlines()[-1]}")
    print(done.stdout, end="")


if __name__ == "__main__":
    run_command(main)
