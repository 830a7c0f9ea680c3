"""A release's bundle beside conda-pack's archive and a container image of the same release.

    python tests/bench/bench_delivery.py [--env ddl-ce] [--channel DIR] [--repeat 3]

Each is made once, from the same lock. Then they are installed in turns, so that the machine's load
hits all alike: the bundle by `sh FILE --root ROOT --no-smoke`; conda-pack's archive by tar and its
own conda-unpack; the image, without that of its base, by umoci. The bundle checks every byte twice
and keeps the packages for clones; the others do neither.

Seconds of processors (user and system) are compared, since the wall's depend on the machine's load.
The bars: the file has at most 1.05 times the bytes of its packages, and is installed in 60 s on two
cores by the quickest run's clock. Prints a table and writes tests/bench/out/delivery.json. It needs
umoci (Debian), root, the channel that `ddlce index` wrote, and 8 GB for `ddl-ce` under the root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from bench.command import HERE, Cost, end, run_command, timed, write_report
from ddlce.env.layout import Layout
from ddlce.lock import lock_path
from ddlce.model.envlock import EnvLock
from ddlce.platforms import this_platform
from ddlce.settings import Settings, load_settings
from ddlce.trees import remove_tree
from support.ocibase import small_base
from support.pip import pip_prefix

OUT = HERE / "out" / "delivery.json"

#: Of the packages' bytes, and seconds.
SIZE_BAR, TIME_BAR = 1.05, 60.0

BUNDLE, PACK, IMAGE = "bundle", "conda-pack", "OCI image"


@dataclass(frozen=True)
class Made:
    """What is handed over.

    Attributes:
        size: its bytes.
        cost: of making it.
        install: installs it into a folder that is not there yet.
    """

    size: int
    cost: Cost
    install: Callable[[Path], Cost]


def make_bundle(settings: Settings, lock: Path, channel: Path, folder: Path) -> Made:
    """The bundle."""
    env = os.environ | {"DDLCE_REPO": str(settings.tree)}
    words: tuple[str | Path, ...] = ("--lock", lock, "--channel", channel, "--out", folder)
    cost = timed(sys.executable, "-m", "ddlce", "bundle", *words, "--no-sbom", env=env)
    (file,) = folder.glob("*.run")
    plain = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}

    def install(target: Path) -> Cost:
        return timed("sh", file, "--root", target, "--no-smoke", env=plain)

    return Made(file.stat().st_size, cost, install)


def make_pack(source: Path, folder: Path) -> Made:
    """conda-pack's archive, packed by as many processes as there are processors."""
    program = pip_prefix("conda-pack") / "bin" / "conda-pack"
    file = folder / "release.tar.gz"
    # Bytecode that ddlce has compiled is of no package as conda-pack knows them.
    words = ["--ignore-missing-files", "--n-threads", "-1", "-q"]
    cost = timed(program, "--prefix", source, "--output", file, *words)

    def install(target: Path) -> Cost:
        target.mkdir()
        unpacked = timed("tar", "-xzf", file, "-C", target)
        return unpacked + timed(target / "bin/python", target / "bin/conda-unpack")

    return Made(file.stat().st_size, cost, install)


def make_image(source: Path, folder: Path) -> Made:
    """The image, on a base of a shell and a C library, whose bytes do not count."""
    base, layout = small_base(folder / "base"), folder / "image"
    words: tuple[str | Path, ...] = ("--base", f"{base}:1", "--out", layout)
    cost = timed(sys.executable, "-m", "ddlce", "image", "oci", source, *words)
    release = EnvLock.load(source / "conda-meta/ddl-ce.lock").release

    def size_of(place: Path) -> int:
        return sum(path.stat().st_size for path in (place / "blobs/sha256").iterdir())

    def install(target: Path) -> Cost:
        return timed("umoci", "unpack", "--image", f"{layout}:{release}", target)

    return Made(size_of(layout) - size_of(base), cost, install)


def measure(made: dict[str, Made], folder: Path, repeat: int) -> dict[str, list[Cost]]:
    """The costs of installing each, in turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in made}
    for turn in range(repeat):
        for name in sorted(made, reverse=bool(turn % 2)):
            target = folder / "installed"
            cost = made[name].install(target)
            remove_tree(target)
            costs[name].append(cost)
            said = f"{cost.processors:.1f} s of processors, {cost.wall:.1f} s"
            print(f"{name}: {said}, load {os.getloadavg()[0]:.1f}", flush=True)
    return costs


def show(made: dict[str, Made], costs: dict[str, list[Cost]], total: int) -> None:
    """Print the table."""
    table = Table(
        title=f"{total / 1e6:.0f} MB of packages; of {len(costs[BUNDLE])} runs the median"
    )
    headings = ("", "MB", "of the packages", "made, s of CPU", "installed, s of CPU", "quickest, s")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left")
    for name, one in made.items():
        table.add_row(
            name,
            f"{one.size / 1e6:.0f}",
            f"{one.size / total:.3f}",
            f"{one.cost.processors:.1f}",
            f"{median(cost.processors for cost in costs[name]):.1f}",
            f"{min(cost.wall for cost in costs[name]):.1f}",
        )
    Console().print(table)


def missed(size: float, seconds: float) -> list[str]:
    """What falls short of the bars.

    Args:
        size: of the bundle, in packages' bytes.
        seconds: of its quickest installation.
    """
    found = []
    if size > SIZE_BAR:
        found.append(f"the bundle has {size:.3f} times its packages, and may have {SIZE_BAR}")
    if seconds > TIME_BAR:
        found.append(f"the bundle takes {seconds:.0f} s, and may take {TIME_BAR:.0f} s")
    return found


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--env", default="ddl-ce", help="an environment that is locked")
    parser.add_argument("--channel", type=Path, help="instead of the tree's")
    parser.add_argument("--source", type=Path, help="the installed release; else the default one")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    if not shutil.which("umoci") or os.geteuid() != 0:
        raise RuntimeError("it needs root and umoci: apt-get install umoci")
    settings = load_settings()
    source = args.source or Layout(settings.root).current(args.env)
    if source is None:
        raise RuntimeError(f"there is no release of {args.env}: make it with `ddlce env create`")
    folder = Path(tempfile.mkdtemp(prefix=".bench-delivery-", dir=settings.root))
    try:
        # A copy: whoever locks the tree meanwhile does not change what is installed.
        lock = Path(shutil.copy(lock_path(settings, args.env, this_platform()), folder))
        total = sum(package.size for package in EnvLock.load(lock).packages)
        channel = (args.channel or settings.channel).resolve()
        made = {
            BUNDLE: make_bundle(settings, lock, channel, folder),
            PACK: make_pack(source.resolve(), folder),
            IMAGE: make_image(source.resolve(), folder),
        }
        costs = measure(made, folder, args.repeat)
    finally:
        remove_tree(folder)
    show(made, costs, total)
    size = made[BUNDLE].size / total
    seconds = min(cost.wall for cost in costs[BUNDLE])
    sizes = {name: one.size for name, one in made.items()}
    making = {name: asdict(one.cost) for name, one in made.items()}
    runs = {name: [asdict(cost) for cost in found] for name, found in costs.items()}
    write_report(args.out, args, packages=total, sizes=sizes, making=making, runs=runs)
    end(missed(size, seconds))


if __name__ == "__main__":
    run_command(main)
