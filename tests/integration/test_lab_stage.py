"""`ddlrun -stage` over several hosts of the lab, each with a disk of its own, and under Slurm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.lab.layout import parse_layout
from bench.lab.namespaces import wait_until
from bench.lab.network import Lab, bring_up
from bench.lab.peers.ddl import start_ddlrun, topology_file
from bench.lab.run import Outcome, run_on
from bench.lab.slurm import slurm_in
from integration.lab import needs_lab, needs_slurm
from support.minienv import NOBODY
from support.stagedenv import image_for, install_small_release, prefix_of

pytestmark = [pytest.mark.built, needs_lab]

HOSTS = ("h0", "h1", "h2", "h3")
DISK_MB = 450
WHO = """
import ddl, numpy, sys
ddl.init()
assert ddl.allreduce(numpy.ones(3))[0] == ddl.size()
print("rank", ddl.rank(), "runs", sys.prefix, flush=True)
ddl.finalize()
"""


@dataclass(frozen=True)
class Staged:
    """The lab, a release on the file system that all hosts share, and its image."""

    lab: Lab
    prefix: Path
    image: Path

    @property
    def place(self) -> Path:
        return self.lab.disk / "ddl-ce"

    def on(self, host: str) -> list[str]:
        """What is in the place on a host, without locks."""
        place = self.lab.on_disk(host) / "ddl-ce"
        return (
            sorted(p.name for p in place.iterdir() if p.suffix not in (".lock", ".files"))
            if place.is_dir()
            else []
        )

    def copy(self, host: str) -> Path:
        """The unpacked image on a host, as this process sees it."""
        return self.lab.on_disk(host) / "ddl-ce" / self.name

    @property
    def name(self) -> str:
        return re.sub(r"-[0-9a-f]{16}\.tar\.zst$", "", self.image.name)

    @property
    def program(self) -> str:
        return str(self.lab.folder / "who.py")

    def run(self, *words: str) -> Outcome:
        command = [f"-stage={self.image}", "-topology", str(self.topology()), *words]
        started = start_ddlrun(self.lab, self.prefix, command, {})
        return run_on(self.lab, "h0", started.command, started.env, 120)

    def topology(self) -> Path:
        return topology_file(self.lab)

    def clear(self) -> None:
        """Empty disks."""
        for host in HOSTS:
            outcome = run_on(self.lab, host, ["rm", "-rf", str(self.place)], {}, 60)
            assert outcome.code == 0, outcome.stderr


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staged]:
    site = install_small_release(tmp_path_factory.mktemp("site"))
    with bring_up(parse_layout("racks-2x2", 500, 200), disk_mb=DISK_MB) as lab:
        (lab.folder / "who.py").write_text(WHO)
        yield Staged(lab, prefix_of(site), image_for(site, lab.disk / "ddl-ce"))


@pytest.fixture
def staged(up: Staged) -> Staged:
    up.clear()
    return up


def who(staged: Staged, *words: str) -> Outcome:
    return staged.run("-H", ",".join(HOSTS), *words, "python", staged.program)


def crossed(staged: Staged, before: dict[str, int]) -> float:
    """The bytes on the busiest uplink since then, in images."""
    after = staged.lab.uplink_bytes()
    return max(after[name] - before[name] for name in after) / staged.image.stat().st_size


def test_ranks_run_from_their_own_disks_and_uplinks_carry_the_image_once(staged: Staged) -> None:
    before = staged.lab.uplink_bytes()
    outcome = who(staged)
    assert outcome.code == 0, outcome.stderr
    where = staged.place / staged.name
    for rank, host in enumerate(HOSTS):
        assert f"[{rank}@{host}] rank {rank} runs {where}\n" in outcome.stdout
        assert staged.on(host) == [staged.name]
    # The start of the job is in it, too.
    assert 1 <= crossed(staged, before) <= 1.04


def test_a_second_job_finds_the_copies(staged: Staged) -> None:
    assert who(staged).code == 0
    inodes = [staged.copy(host).stat().st_ino for host in HOSTS]
    before = staged.lab.uplink_bytes()
    outcome = who(staged, "-v")
    assert outcome.code == 0, outcome.stderr
    assert "on 4 hosts in" in outcome.stderr
    assert "unpacked on 0" in outcome.stderr
    assert [staged.copy(host).stat().st_ino for host in HOSTS] == inodes
    assert crossed(staged, before) < 0.1


def test_only_hosts_without_a_copy_get_one(staged: Staged) -> None:
    started = start_ddlrun(
        staged.lab,
        staged.prefix,
        [f"-stage={staged.image}", "-H", "h0,h1", "python", staged.program],
        {},
    )
    assert run_on(staged.lab, "h0", started.command, started.env, 120).code == 0
    inode = staged.copy("h1").stat().st_ino
    outcome = who(staged, "-v")
    assert outcome.code == 0, outcome.stderr
    assert "unpacked on 2" in outcome.stderr
    assert staged.copy("h1").stat().st_ino == inode


def failed(staged: Staged, outcome: Outcome) -> str:
    """What is said; then nothing was started, and nothing half-unpacked is there."""
    assert outcome.code == 2, outcome.stdout + outcome.stderr
    assert "runs" not in outcome.stdout
    assert outcome.stderr.startswith("ddlrun: error: cannot stage"), outcome.stderr
    assert "Traceback" not in outcome.stderr
    for host in HOSTS:
        assert [name for name in staged.on(host) if name.startswith(".")] == []
    return outcome.stderr


def test_a_full_disk_is_named(staged: Staged) -> None:
    filler = staged.lab.on_disk("h2") / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, (DISK_MB - 60) << 20)
    try:
        said = failed(staged, who(staged))
    finally:
        filler.unlink()
    assert f"h2: {staged.place} has " in said
    assert "MB free, and the image needs" in said
    assert [staged.on(host) for host in HOSTS] == [[]] * 4


def test_another_users_place_is_named(staged: Staged) -> None:
    theirs = staged.lab.on_disk("h1") / "ddl-ce"
    theirs.mkdir(0o700)
    (theirs / staged.name).mkdir()  # a stale image
    os.chown(theirs, NOBODY, NOBODY)
    assert f"h1: {staged.place} belongs to user {NOBODY}" in failed(staged, who(staged))


def test_a_damaged_image_is_named(staged: Staged) -> None:
    whole = staged.image.read_bytes()
    staged.image.write_bytes(whole[:-5000] + bytes(5000))
    try:
        said = failed(staged, who(staged))
    finally:
        staged.image.write_bytes(whole)
    assert "the image is damaged" in said
    assert [staged.on(host) for host in HOSTS] == [[]] * 4


def test_a_host_that_is_not_there_is_named(staged: Staged) -> None:
    started = start_ddlrun(
        staged.lab, staged.prefix, [f"-stage={staged.image}", "-H", "h1,h2", "true"], {}
    )
    outcome = run_on(staged.lab, "h0", started.command, started.env, 60)
    assert outcome.code == 2
    assert "ddlrun must run on one of the job's hosts" in outcome.stderr


@needs_slurm
def test_a_job_cancelled_in_mid_staging_leaves_nothing(staged: Staged) -> None:
    lab = staged.lab
    with slurm_in(lab) as slurm:
        script = f"#!/bin/bash\nexport PATH={staged.prefix}/bin:$PATH\n"
        script += f"ddlrun -stage={staged.image} python {staged.program}\n"
        number = slurm.submit(script, "-N", "4", "-o", "out")
        assert wait_until(
            lambda: [n for host in HOSTS for n in staged.on(host) if n.startswith(".")], 60, 0.02
        )
        slurm.run("scancel", str(number))
        assert slurm.wait(number, 60)["JobState"] == "CANCELLED"
        assert wait_until(lambda: not stagers(), 60, 0.02)
        assert [n for host in HOSTS for n in staged.on(host) if n.startswith(".")] == []
        said = slurm.folder / "out"
        assert "runs" not in said.read_text()
        # The next job finds no lock, and no half.
        number = slurm.submit(script, "-N", "4", "-o", "second")
        assert slurm.wait(number, 120)["JobState"] == "COMPLETED"
        second = (slurm.folder / "second").read_text()
        assert second.count(f"runs {staged.place}/{staged.name}") == 4, second


def stagers() -> list[str]:
    """The processes of ddl-stage on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text() == "ddl-stage\n":
                found.append(path.parent.name)
        except OSError:
            continue  # it has ended
    return found
