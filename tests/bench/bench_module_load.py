"""How long `module load` takes beside sourcing the environment's own activation, in one bash.

    python tests/bench/bench_module_load.py [--prefix PREFIX] [--repeat 31]

Each is timed in turns, inside a running bash, from the command to the next prompt; undoing is
not timed. Sourcing does what conda's generated activation does: PATH, CONDA_PREFIX, and every
script of activate.d. conda first starts a Python to generate that, which is timed on its own.
Without --prefix: the default release of `ddl-ce` under DDLCE_ROOT, else a small test prefix.
Prints a table and writes tests/bench/out/module_load.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from ddlce.env.layout import Layout
from ddlce.modulefile.activation import conda_variables
from ddlce.modulefile.install import write_modulefiles
from ddlce.settings import load_settings
from support.moduleprefix import make_tricky_prefix
from support.modulesystems import find_system

OUT = Path(__file__).parent / "out" / "module_load.json"

BASH = """\
{init}
for turn in $(seq {repeat}); do
    begin=$EPOCHREALTIME
    {command}
    end=$EPOCHREALTIME
    [ "$CONDA_PREFIX" = {prefix} ] || {{ echo "{command} did not work" >&2; exit 1; }}
    echo $begin $end
    {undo}
done
"""


def measure(init: str, command: str, undo: str, prefix: Path, repeat: int) -> list[float]:
    """Seconds of each `command` in one bash; it must set CONDA_PREFIX."""
    script = BASH.format(
        init=init, command=command, undo=undo, prefix=shlex.quote(str(prefix)), repeat=repeat
    )
    env = {"HOME": os.environ["HOME"], "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    bash = ["bash", "--noprofile", "--norc", "-c", script]
    done = subprocess.run(bash, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stderr}")
    times = [line.replace(",", ".").split() for line in done.stdout.splitlines()]
    return [float(end) - float(begin) for begin, end in times]


def activation(prefix: Path) -> str:
    """A bash script that activates `prefix` as conda's generated code does."""
    q = shlex.quote
    lines = [f"export PATH={q(str(prefix / 'bin'))}:$PATH CONDA_PREFIX={q(str(prefix))}"]
    lines.append("export CONDA_SHLVL=1 CONDA_DEFAULT_ENV=ddl-ce")
    lines += [f"export {name}={q(value)}" for name, value in conda_variables(prefix).items()]
    lines += [f". {q(str(s))}" for s in sorted(prefix.glob("etc/conda/activate.d/*.sh"))]
    return "\n".join(lines) + "\n"


def bench(prefix: Path, folder: Path, repeat: int) -> dict[str, list[float]]:
    """Seconds of every way to get into `prefix`."""
    written = write_modulefiles(prefix, Layout(folder), folder / "modules", "bench")
    script = folder / "activate.sh"
    script.write_text(activation(prefix))
    saved = "saved=$PATH"
    undo = "PATH=$saved; unset CONDA_PREFIX CONDA_SHLVL CONDA_DEFAULT_ENV"
    rows = {"source activation": measure(saved, f". {script}", undo, prefix, repeat)}
    python = prefix / "bin" / "python"
    start = f"{shlex.quote(str(python))} -c pass > /dev/null; . {script}"
    rows["start python, source"] = measure(saved, start, undo, prefix, repeat)
    for name in ("lmod", "environment-modules"):
        system = find_system(name)
        if isinstance(system, str):
            print(f"left out: {system}", file=sys.stderr)
            continue
        tree = written.trees[system.writer]
        init = f". {system.init / 'bash'}; module use {tree}"
        rows[f"module load ({name})"] = measure(
            init, "module load bench", "module unload bench", prefix, repeat
        )
        # What the module system itself takes, whatever the modulefile says.
        file = written.files[system.writer]
        empty = tree / "empty" / file.name
        empty.parent.mkdir()
        empty.write_text("" if file.suffix == ".lua" else "#%Module\n")
        rows[f"the same, empty file ({name})"] = measure(
            f"{init}; export CONDA_PREFIX={shlex.quote(str(prefix))}",
            "module load empty",
            "module unload empty",
            prefix,
            repeat,
        )
    return rows


def main() -> None:
    """Print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefix", type=Path, help="the environment")
    parser.add_argument("--repeat", type=int, default=31, help="loads of each kind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ddlce-bench-") as name:
        folder = Path(name)
        prefix = options.prefix or Layout(load_settings().root).current("ddl-ce")
        prefix = (prefix or make_tricky_prefix(folder)).resolve()
        rows = bench(prefix, folder, options.repeat)
    base = statistics.median(rows["source activation"])
    table = Table("way", "median ms", "min ms", "max ms", "ratio", title=f"into {prefix}")
    report = {}
    for way, times in rows.items():
        middle = statistics.median(times)
        shown = [f"{1e3 * t:.1f}" for t in (middle, min(times), max(times))]
        table.add_row(way, *shown, f"{middle / base:.1f}")
        report[way] = {"median_s": middle, "min_s": min(times), "max_s": max(times)}
        report[way]["ratio"] = middle / base
    Console().print(table)
    OUT.parent.mkdir(exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "cpus": os.cpu_count()}
    result = {"prefix": str(prefix), "repeat": options.repeat, "machine": machine, "ways": report}
    OUT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
