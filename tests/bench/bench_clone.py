"""How long a clone takes beside a plain copy of the same environment, in the same run.

    python tests/bench/bench_clone.py [--source PREFIX] [--repeat 3]

Both go to the same folder on the source's file system, in turns, so that the machine's load
hits both alike. All is removed after the last turn only: ext4 without a journal does not use the
inodes of removed files for some minutes, and looks at each of them for each new folder. So wait
five minutes, too, after removing an environment: a clone can take twice its time until then.
Without --source: the default release of `ddl-ce` under DDLCE_ROOT. Prints a table and writes
tests/bench/out/clone.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from bench.command import run_command, timed
from ddlce.env.layout import Layout, read_origin
from ddlce.settings import load_settings
from ddlce.trees import remove_tree

OUT = Path(__file__).parent / "out" / "clone.json"


def new_bytes(prefix: Path) -> int:
    """Bytes of disk that a copy really takes: its own files, not the hard links."""
    sizes = (p.lstat() for p in prefix.rglob("*") if p.is_file() and not p.is_symlink())
    return sum(status.st_blocks * 512 for status in sizes if status.st_nlink == 1)


def measure(source: Path, repeat: int) -> dict[str, Any]:
    """Clone and copy `source` in turns."""
    folder = Path(tempfile.mkdtemp(prefix=".bench-clone-", dir=source.parents[1]))
    times: dict[str, list[float]] = {"ddlce env clone": [], "cp -a": []}
    disk: dict[str, int] = {}
    env = os.environ | {"DDLCE_CACHE": str(folder / "cache"), "CONDA_PREFIX": ""}
    try:
        for turn in range(repeat):
            clone, copy = folder / f"clone{turn}", folder / f"copy{turn}"
            command: list[str | Path] = [sys.executable, "-m", "ddlce", "env", "clone", clone]
            command += ["--from", source]
            times["ddlce env clone"].append(timed(*command, env=env).wall)
            times["cp -a"].append(timed("cp", "-a", source, copy).wall)
            disk = {"ddlce env clone": new_bytes(clone), "cp -a": new_bytes(copy)}
    finally:
        remove_tree(folder)
    files = [p for p in source.rglob("*") if p.is_file() and not p.is_symlink()]
    return {
        "source": source.name,
        "files": len(files),
        "bytes": sum(p.stat().st_size for p in files),
        "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "cpu": platform.machine()},
        "seconds": times,
        "disk": disk,
    }


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--source", type=Path, help="a prefix made by ddlce")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    source = args.source or Layout(load_settings().root).current("ddl-ce")
    if source is None or read_origin(source) is None:
        sys.exit("there is no environment to clone; make one with: ddlce env create")
    result = measure(source.resolve(), args.repeat)
    table = Table(
        title=f"{result['files']} files, {result['bytes'] / 1e6:.0f} MB, median of {args.repeat}"
    )
    for heading in ("", "seconds", "best", "new on disk, MB"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, seconds in result["seconds"].items():
        table.add_row(
            name,
            f"{statistics.median(seconds):.2f}",
            f"{min(seconds):.2f}",
            f"{result['disk'][name] / 1e6:.1f}",
        )
    Console().print(table)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    run_command(main)
