"""What it adds to `ddlce env create` to ask whose signatures a release has.

    python tests/bench/bench_signed.py [--env ddl-ce] [--channel DIR] [--repeat 5]

A channel's metadata are made and signed as the site guide says. The lock is installed once. Then
the command runs on the release that is there, with a trusted root and with `signatures: unchecked`
in turns: all that is left to do is to read the lock, and to check it. So the difference is not lost
in that of two installations, which is larger. Each run knows nothing of the metadata that another
one has seen.

Seconds of processors (user and system) are compared, since the wall's depend on the machine's
load. The bar is 10% of the installation. Prints a table and writes tests/bench/out/signed.json.
It needs the channel that `ddlce index` wrote, and room for the environment under the root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from bench.command import HERE, Cost, end, run_command, timed, write_report
from ddlce.lock import lock_path
from ddlce.platforms import this_platform
from ddlce.settings import load_settings
from ddlce.trees import remove_tree

OUT = HERE / "out" / "signed.json"

#: How much longer a checked installation may take.
BAR = 0.10

UNCHECKED, CHECKED = "unchecked", "checked"


def ddlce(*words: str | Path, env: dict[str, str]) -> Cost:
    """Run a command of ddlce; it must succeed."""
    return timed(sys.executable, "-m", "ddlce", *words, env=env)


def sign(folder: Path, channel: Path, env: dict[str, str]) -> dict[str, Path]:
    """Sign the tree's locks and the channel's index; the settings file of each way to install."""
    keys = [folder / name for name in ("anna", "ben", "cleo", "release")]
    for key in keys:
        ddlce("keys", "new", key, env=env)
    *roots, release = keys
    metadata = folder / "metadata"
    roles = [f"--root-key={key}.pub" for key in roots] + [f"--release-key={release}.pub"]
    signers = [f"--sign={key}" for key in roots[:2]]
    place: list[str | Path] = ["--metadata", metadata]
    ddlce("keys", "root", *roles, "--threshold", "2", *signers, *place, env=env)
    ddlce("keys", "sign", "--sign", release, "--channel", channel, *place, env=env)
    trusted = f"{{root: {metadata}/1.root.json, metadata: {metadata}}}"
    files = {}
    for way, said in ((UNCHECKED, "unchecked"), (CHECKED, trusted)):
        files[way] = folder / f"{way}.yaml"
        files[way].write_text(f"signatures: {said}\n")
    return files


def measure(
    folder: Path, lock: Path, channel: Path, repeat: int
) -> tuple[Cost, dict[str, list[Cost]]]:
    """The cost of an installation, and of the command where the release is there, by way."""
    env = os.environ | {"DDLCE_CACHE": str(folder / "cache"), "DDLCE_REPO": str(HERE.parents[1])}
    # A copy: whoever locks the tree meanwhile does not change what is installed.
    mine = Path(shutil.copy(lock, folder))
    settings = sign(folder, channel, env)
    command: list[str | Path] = ["env", "create", "--lock", mine, "--channel", channel]
    command += ["--root", folder / "root"]

    def create(way: str) -> Cost:
        shutil.rmtree(folder / "cache" / "trust", ignore_errors=True)
        cost = ddlce(*command, env=env | {"DDLCE_SETTINGS": str(settings[way])})
        print(f"{way}: {cost.processors:.2f} s of processors, {cost.wall:.2f} s", flush=True)
        return cost

    installed = create(UNCHECKED)
    costs: dict[str, list[Cost]] = {way: [] for way in settings}
    for turn in range(repeat):
        for way in sorted(settings, reverse=bool(turn % 2)):
            costs[way].append(create(way))
    return installed, costs


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--env", default="ddl-ce", help="an environment that is locked")
    parser.add_argument("--channel", type=Path, help="instead of the tree's")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    settings = load_settings()
    settings.root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".bench-signed-", dir=settings.root))
    channel = (args.channel or settings.channel).resolve()
    lock = lock_path(settings, args.env, this_platform())
    try:
        installed, costs = measure(folder, lock, channel, args.repeat)
    finally:
        remove_tree(folder)
    table = Table(title=f"ddlce env create {args.env}; of {args.repeat} runs the median")
    for heading in ("", "seconds of processors", "by the clock"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("installed", f"{installed.processors:.2f}", f"{installed.wall:.2f}")
    middle = {
        way: Cost(median(c.processors for c in found), median(c.wall for c in found))
        for way, found in costs.items()
    }
    for way, cost in middle.items():
        table.add_row(f"there, {way}", f"{cost.processors:.2f}", f"{cost.wall:.2f}")
    Console().print(table)
    added = (middle[CHECKED].processors - middle[UNCHECKED].processors) / installed.processors
    print(f"checking adds {added:+.1%} to an installation; the bar is {BAR:.0%}")
    runs = {way: [asdict(cost) for cost in found] for way, found in costs.items()}
    write_report(args.out, args, installed=asdict(installed), runs=runs, added=added)
    end([f"checking adds {added:.1%}, and may add {BAR:.0%}"] if added > BAR else [])


if __name__ == "__main__":
    run_command(main)
