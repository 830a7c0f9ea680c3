"""How soon a job has its first allreduce: from a shared folder, by `ddlrun -stage`, by sbcast.

    python tests/bench/bench_stage.py [--repeat 3] [--layout racks-2x4] [--specs ddl]

Needs root and Slurm: eight hosts of the lab, each with a disk of its own (a tmpfs), run jobs of one
rank a host that import numpy and ddl. The ways take turns, and each begins with empty disks:

- shared: every rank reads the release on the file system that all hosts share;
- stage: `ddlrun -stage`, which has the racks from Slurm and not the links' speeds;
- stage -topology: the same with a file that has the speeds, too;
- stage again: the same, where the hosts have their copies;
- sbcast: Slurm's `sbcast` of the same image, `srun tar` on each host, then ddlrun from there.

The time is from the batch script's begin to the first allreduce's end on rank 0. Once for each of
the first three ways, strace counts the files of the shared folder that the last host opens, in a
run of its own. The hosts share one disk and its cache here, so opening a shared file costs next to
nothing: the files that are opened say what a file server would have to do.

Prints a table, writes tests/bench/out/stage.json, and ends with 1 when an uplink carries more than
1.02 times the image though the links' speeds are known, or the last host opens more than 20 files
by `stage`. Ten of these are libraries of MPICH.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.check import Check, missed
from bench.command import asker, end, run_command, write_report
from bench.lab import slurm as lab_slurm
from bench.lab.layout import parse_layout
from bench.lab.network import Lab, bring_up, why_not
from bench.lab.peers.ddl import start_ddlrun, topology_file
from bench.lab.run import run_on
from bench.lab.slurm import Slurm, slurm_in
from support.stagedenv import image_for, install_small_release, prefix_of

OUT = Path(__file__).parent / "out" / "stage.json"
ROW = "staging: each uplink carries the image once"
CARRIED, OPENED = 1.02, 20
WAYS = ("shared", "stage -topology", "stage", "stage again", "sbcast")
LIMIT = 600.0
FIRST = """
import numpy, ddl, time
ddl.init()
ddl.allreduce(numpy.ones(1000))
if ddl.rank() == 0:
    print("first allreduce", time.time(), flush=True)
ddl.finalize()
"""
# Slurm's Debian package starts the program in the folder of sbatch; all paths are absolute.
SBCAST = """
srun --ntasks-per-node=1 mkdir -p -m 700 {place}/{name}
sbcast {image} {place}/image.tar.zst
srun --ntasks-per-node=1 tar --zstd -xpof {place}/image.tar.zst -C {place}/{name}
srun --ntasks-per-node=1 rm {place}/image.tar.zst
export PATH={place}/{name}/bin:$PATH
"""


@dataclass
class Way:
    """What was measured of one way.

    Attributes:
        seconds: to the first allreduce, one for each turn.
        carried: bytes on the busiest uplink in one direction, in images; one for each turn.
        on_the_wire: the same, with the headers of Ethernet, IP and TCP.
        opened: files of the shared folder that the last host opened; None: not counted.
    """

    seconds: list[float] = field(default_factory=list)
    carried: list[float] = field(default_factory=list)
    on_the_wire: list[float] = field(default_factory=list)
    opened: int | None = None


@dataclass(frozen=True)
class Setting:
    """A lab with Slurm, a release and its image."""

    slurm: Slurm
    prefix: Path
    image: Path

    @property
    def lab(self) -> Lab:
        """The hosts."""
        return self.slurm.lab

    @property
    def place(self) -> Path:
        """Where the image goes on each host."""
        return self.lab.disk / "ddl-ce"

    @property
    def program(self) -> Path:
        """The ranks' program."""
        return self.lab.folder / "first.py"

    def script(self, way: str) -> str:
        """The batch script of a way."""
        name = re.sub(r"-[0-9a-f]{16}\.tar\.zst$", "", self.image.name)
        stage = f" -stage={self.image}" if way.startswith("stage") else ""
        stage += f" -topology {topology_file(self.lab)}" if "-topology" in way else ""
        before = SBCAST.format(place=self.place, name=name, image=self.image)
        return (
            "#!/bin/bash\nset -e\necho begin $EPOCHREALTIME\n"
            f"export PATH={self.prefix}/bin:$PATH\n"
            f"{before if way == 'sbcast' else ''}ddlrun{stage} python {self.program}\n"
        )

    def clear(self) -> None:
        """Empty all disks."""
        for host in self.lab.names:  # not by `run_on`, which would end Slurm's daemons
            shutil.rmtree(self.lab.on_disk(host) / self.place.name, ignore_errors=True)


def measure(setting: Setting, way: str, found: Way) -> None:
    """One turn of a way."""
    before, whole = (setting.lab.uplink_bytes(headers=headers) for headers in (False, True))
    out = setting.slurm.folder / f"out.{time.monotonic_ns()}"
    hosts = str(len(setting.lab.names))
    number = setting.slurm.submit(setting.script(way), "-N", hosts, "-o", str(out))
    facts = setting.slurm.wait(number, LIMIT)
    said = out.read_text()
    done = re.search(r"first allreduce (\S+)", said)
    begin = re.search(r"^begin (\S+)", said)
    if facts["JobState"] != "COMPLETED" or not done or not begin:
        raise ValueError(f"{way}: {facts['JobState']}: {said.strip()[-400:]}")
    after, at_end = (setting.lab.uplink_bytes(headers=headers) for headers in (False, True))
    found.seconds.append(float(done[1]) - float(begin[1]))
    size = setting.image.stat().st_size
    found.carried.append(max(after[name] - before[name] for name in after) / size)
    found.on_the_wire.append(max(at_end[name] - whole[name] for name in whole) / size)


def count_opened(setting: Setting, way: str) -> int:
    """Files of the shared folder that the last host opens or runs, by strace."""
    lab, last = setting.lab, setting.lab.names[-1]
    trace = lab.folder / f"trace.{way.replace(' ', '-')}"
    with traced_ssh(lab, last, trace) as tools:
        words = [f"-stage={setting.image}"] if way.startswith("stage") else []
        words += ["-H", ",".join(lab.names), "python", str(setting.program)]
        started = start_ddlrun(lab, setting.prefix, words, {})
        env = {**started.env, "PATH": f"{tools}:{started.env['PATH']}"}
        outcome = run_on(lab, "h0", started.command, env, LIMIT)
    if outcome.code:
        raise ValueError(f"{way}, traced: {outcome.stderr.strip()[-400:]}")
    shared = (str(setting.prefix), str(setting.image.parent))
    opened = 0
    for line in trace.read_text(errors="replace").splitlines():
        call = re.search(r'(?:openat\([^"]*|execve\()"([^"]+)".* = (\d+)', line)
        if call and call[1].startswith(shared) and "O_DIRECTORY" not in line:
            opened += 1
    return opened


@contextmanager
def traced_ssh(lab: Lab, host: str, trace: Path) -> Iterator[Path]:
    """A folder for PATH whose `ssh` traces what it starts on one host."""
    with tempfile.TemporaryDirectory(dir=lab.folder) as name:
        program = Path(name, "ssh")
        program.write_text(
            "#!/bin/sh\n"
            f'case " $* " in *" {host} "*) exec strace -f -A -s 300 -e trace=openat,execve '
            f'-o {trace} {lab.tools}/ssh "$@" ;; esac\n'
            f'exec {lab.tools}/ssh "$@"\n'
        )
        program.chmod(0o755)
        yield Path(name)


def run(ask: argparse.Namespace) -> tuple[dict[str, Way], dict[str, float]]:
    """All turns; and the image's size, what it unpacks to, and its files."""
    found = {way: Way() for way in WAYS}
    layout = parse_layout(ask.layout, ask.host_mbit, ask.uplink_mbit)
    with tempfile.TemporaryDirectory(prefix="ddlce-bench-stage-") as name:
        Path(name).chmod(0o755)
        site = install_small_release(Path(name), tuple(ask.specs))
        with bring_up(layout, disk_mb=ask.disk_mb) as lab:
            (lab.folder / "first.py").write_text(FIRST)
            image = image_for(site, lab.disk / "ddl-ce")
            with slurm_in(lab) as slurm:
                setting = Setting(slurm, prefix_of(site), image)
                for turn in range(ask.repeat):
                    for way in WAYS:
                        if way != "stage again":
                            setting.clear()
                        measure(setting, way, found[way])
                        print(f"turn {turn + 1}: {way}: {found[way].seconds[-1]:.1f} s", flush=True)
                setting.clear()
            for way in ("shared", "stage", "stage again"):
                found[way].opened = count_opened(setting, way)
            size = float(image.stat().st_size)
            files = sum(1 for path in setting.prefix.rglob("*") if not path.is_dir())
    return found, {"image_bytes": size, "files": float(files)}


def show(found: dict[str, Way]) -> None:
    """The table."""
    heads = ("way", "median s", "min s", "max s", "uplink", "with headers", "files, last host")
    table = Table(*heads, title="to the first allreduce; images on the busiest uplink")
    for name, way in found.items():
        times = (statistics.median(way.seconds), min(way.seconds), max(way.seconds))
        opened = "" if way.opened is None else str(way.opened)
        carried = [f"{statistics.median(row):.3f}" for row in (way.carried, way.on_the_wire)]
        table.add_row(name, *(f"{seconds:.1f}" for seconds in times), *carried, opened)
    Console(width=110).print(table)


def checks(found: dict[str, Way]) -> list[Check]:
    """What is demanded of `ddlrun -stage`."""
    stage = found["stage -topology"]
    worst = max(stage.carried)
    opened = float(found["stage"].opened or 0)
    return [
        Check(ROW, "-topology", "{} images on the busiest uplink", worst, CARRIED, at_most=True),
        Check(ROW, "stage", "{} shared files opened on a host", opened, OPENED, at_most=True),
    ]


def main() -> None:
    """Measure, print the table, write the JSON."""
    ask = asker(__doc__)
    ask.add_argument("--repeat", type=int, default=3, help="turns of each way")
    ask.add_argument("--layout", default="racks-2x4", help="of the lab")
    ask.add_argument("--specs", nargs="+", default=["ddl"], help="packages of the release")
    ask.add_argument("--host-mbit", type=float, default=500, help="rate of a host's link")
    ask.add_argument("--uplink-mbit", type=float, default=200, help="rate of a rack's uplink")
    ask.add_argument("--disk-mb", type=int, default=450, help="size of each host's own disk")
    asked = ask.parse_args()
    if why := why_not() or lab_slurm.why_not():
        print(f"skipped: {why}")
        return
    found, about = run(asked)
    show(found)
    write_report(OUT, asked, **about, ways={name: asdict(way) for name, way in found.items()})
    end(missed(checks(found)))


if __name__ == "__main__":
    run_command(main)
