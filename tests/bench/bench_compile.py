"""CPU time of compilations by the release's compilers, beside the machine's of the same GCC.

Both compile the same sources of libddl and of ddl-torch against the release's sysroot and headers,
in turns; the ratio is the median of the turns. Needs a `g++` of the machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import run_command, timed
from bench.environment import environment_with

REPO = Path(__file__).resolve().parents[2]
OUT = Path(__file__).parent / "out"
OWN = "x86_64-conda-linux-gnu-g++"

#: A source of each kind: kernels, the library's plain code, and one with torch's headers.
SOURCES = {
    "libddl, kernels.cc": "recipes/ddl/src/lib/reduce/kernels.cc",
    "libddl, mpi.cc": "recipes/ddl/src/lib/transport/mpi.cc",
    "ddl-torch, backend.cc": "recipes/ddl-torch/src/csrc/backend.cc",
}


def flags(prefix: Path) -> list[str]:
    """Where headers are, and how they are compiled."""
    python = next((prefix / "include").glob("python3.*"))
    torch = next((prefix / "lib").glob("python3.*/site-packages/torch/include"))
    lib = REPO / "recipes/ddl/src"
    folders = [lib / "include", lib / "lib", prefix / "include", python]
    folders += [torch, torch / "torch/csrc/api/include"]
    return ["-std=c++20", "-O2", "-fPIC", "-c", *(f"-I{folder}" for folder in folders)]


def sysroot(prefix: Path) -> list[str]:
    """The machine's compiler sees the release's C and C++ library, as ours does."""
    target = prefix / "x86_64-conda-linux-gnu"
    headers = max((target / "gcc" / "include" / "c++").iterdir())
    folders = (headers, headers / "x86_64-linux-gnu", headers / "backward")
    places = [f"-isystem{folder}" for folder in folders]
    return [f"--sysroot={target / 'sysroot'}", "-nostdinc++", *places]


def processes(command: list[str]) -> int | None:
    """How many programs a command executes; None where there is no strace."""
    if not (strace := shutil.which("strace")):
        return None
    traced = [strace, "-f", "-qq", "-e", "trace=execve", "-e", "status=successful", *command]
    done = subprocess.run(traced, capture_output=True, text=True, check=True)
    return done.stderr.count("execve(")


def main() -> None:
    """Print the table and write out/compile.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefix", type=Path, help="the environment; the built one by default")
    parser.add_argument("--repeat", type=int, default=5, help="turns of each source")
    options = parser.parse_args()
    prefix = environment_with(OWN, options.prefix)
    if not (machine := shutil.which("g++")):
        sys.exit("this machine has no g++ to compare with")
    rows: dict[str, dict[str, object]] = {}
    print(f"{'source':24} {'own s':>7} {'machine s':>10} {'ratio':>6} {'programs':>9}")
    with tempfile.TemporaryDirectory(prefix="ddlce-bench-") as scratch:
        for name, source in SOURCES.items():
            common = [*flags(prefix), str(REPO / source), "-o", f"{scratch}/object.o"]
            own = [str(prefix / "bin" / OWN), *common]
            others = [machine, *sysroot(prefix), *common]
            turns = [
                (timed(*own).processors, timed(*others).processors) for _ in range(options.repeat)
            ]
            ratio = statistics.median(mine / theirs for mine, theirs in turns)
            mine, theirs = (statistics.median(times) for times in zip(*turns, strict=True))
            counts = [processes(own), processes(others)]
            rows[name] = {"own": mine, "machine": theirs, "ratio": ratio, "programs": counts}
            counted = "/".join("?" if count is None else str(count) for count in counts)
            print(f"{name:24} {mine:7.2f} {theirs:10.2f} {ratio:6.3f} {counted:>9}")
    OUT.mkdir(exist_ok=True)
    page = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "rows": rows,
    }
    (OUT / "compile.json").write_text(json.dumps(page, indent=2) + "\n")


if __name__ == "__main__":
    run_command(main)
