"""DDL_TIMELINE: one Chrome trace of all ranks on one clock, and errors where it cannot be."""

from __future__ import annotations

import collections
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import MPIEXEC, PROGRAMS, Launch, environment

LATE_US = 0.3e6  # as programs/timeline.py has it
PROGRAM = [sys.executable, str(PROGRAMS / "timeline.py")]

Event = dict[str, Any]


def spans(file: Path, name: str = "") -> list[Event]:
    """The events with a begin and an end, of this name."""
    events = json.loads(file.read_text())["traceEvents"]
    return [e for e in events if e["ph"] == "X" and name in ("", e["name"])]


def told(file: Path) -> dict[int, Event]:
    """What each rank says of itself."""
    events = json.loads(file.read_text())["traceEvents"]
    return {e["pid"]: e["args"] for e in events if e["name"] == "ddl_rank"}


def on(file: Path) -> dict[str, str]:
    return {"DDL_TIMELINE": str(file)}


@pytest.mark.parametrize(("n", "hosts"), [(1, 0), (2, 0), (4, 2)])
def test_one_file_has_the_collectives_of_all_ranks(
    passes: Launch, tmp_path: Path, n: int, hosts: int
) -> None:
    file = tmp_path / "a b.json"
    passes("timeline", "kinds", n=n, hosts=hosts, env=on(file))
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert file.stat().st_mode & 0o777 == 0o600
    names = collections.Counter(e["name"] for e in spans(file) if "call" in e["args"])
    assert names["barrier"] == names["broadcast"] == names["finalize"] == n
    assert names["allgather"] == min(n, 2)
    sums = [e for e in spans(file, "allreduce") if e["args"]["type"] == "float32"]
    assert [e["pid"] for e in sums] == list(range(n))
    for event in sums:
        schedule = "direct" if hosts else "host"
        assert event["args"]["bytes"] == 4 << 16
        assert event["args"]["op"] == "average"
        assert event["args"]["schedule"] == schedule
    assert list(told(file)) == list(range(n))
    assert len({rank["host"] for rank in told(file).values()}) == max(hosts, 1)
    assert all(rank["dropped_collectives"] == 0 for rank in told(file).values())


def test_events_of_a_row_follow_each_other(passes: Launch, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    passes("timeline", "kinds", n=4, hosts=2, chunk=1 << 15, env=on(file))
    rows: dict[tuple[int, int], list[Event]] = collections.defaultdict(list)
    for event in spans(file):
        rows[event["pid"], event["tid"]].append(event)
    for row in rows.values():
        row.sort(key=lambda e: e["ts"])
        for first, second in itertools.pairwise(row):
            assert first["ts"] + first["dur"] <= second["ts"] + 0.002  # of rounding


def test_messages_between_hosts_are_seen_on_both_sides(passes: Launch, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    passes("timeline", "kinds", n=4, hosts=2, chunk=1 << 15, env=on(file))
    sent: collections.Counter[tuple[int, int]] = collections.Counter()
    come: collections.Counter[tuple[int, int]] = collections.Counter()
    for event in spans(file, "send"):
        sent[event["pid"], event["args"]["to"]] += event["args"]["bytes"]
    for event in spans(file, "recv"):
        come[event["args"]["from"], event["pid"]] += event["args"]["bytes"]
    assert sent == come
    # Each host's pair of ranks sends its half of the sum's 256 KiB, and takes part in no more.
    assert sent[0, 1] >= 64 << 10
    assert sent[1, 0] >= 64 << 10


def assert_late(file: Path, n: int) -> None:
    """The last rank comes late to the first sum, and all leave it together."""
    sums = [e for e in spans(file, "allreduce") if e["args"]["type"] == "float32"]
    begins = {e["pid"]: e["ts"] for e in sums}
    ends = {e["pid"]: e["ts"] + e["dur"] for e in sums}
    for rank in range(n - 1):
        assert 0.5 * LATE_US < begins[n - 1] - begins[rank] < 20 * LATE_US
        assert ends[rank] > begins[n - 1]


@pytest.mark.parametrize("hosts", [0, 2])
def test_a_late_rank_is_seen(passes: Launch, tmp_path: Path, hosts: int) -> None:
    passes("timeline", "kinds", n=4, hosts=hosts, env=on(tmp_path / "t.json"))
    assert_late(tmp_path / "t.json", 4)


def in_another_time(days: int) -> list[str]:
    """The beginning of a command whose clock is of another time, as another machine's is."""
    words = ["unshare", "--time", "--monotonic", str(days * 86400)]
    users = [[], ["--user", "--map-root-user"]]
    for command in ([*words[:1], *more, *words[1:]] for more in users):
        with_true = subprocess.run([*command, "true"], capture_output=True, check=False)
        if with_true.returncode == 0:
            return command
    pytest.skip("no namespaces of time here")


def test_clocks_of_hosts_are_aligned(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    command = [*MPIEXEC, "-n", "1", *PROGRAM, "kinds"]
    command += [":", "-n", "1", *in_another_time(1000), *PROGRAM, "kinds"]
    env = environment(DDL_FAKE_HOSTS=2, DDL_FAKE_SOCKETS=1, DDL_TIMELINE=file)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_late(file, 2)
    error = told(file)[1]["clock_error_us"]
    assert told(file)[0]["clock_error_us"] == 0 < error < LATE_US / 3
    # No message comes before it has been sent, but for the error.
    first = [min(e["ts"] for e in spans(file, "send") if e["pid"] == rank) for rank in (0, 1)]
    last = [max(e["ts"] + e["dur"] for e in spans(file, "recv") if e["pid"] == r) for r in (0, 1)]
    assert last[1] > first[0] - error
    assert last[0] > first[1] - error


def test_memory_is_bounded_and_what_is_missing_is_said(passes: Launch, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    passes("timeline", "many", n=2, env=on(file))
    most = 1 << 14
    for rank, facts in told(file).items():
        kept = [e for e in spans(file, "allreduce") if e["pid"] == rank]
        calls = [e["args"]["call"] for e in kept]
        assert len(calls) == most - 1  # and the last of all, which ends the job
        assert calls == list(range(20_000 - most + 2, 20_001))
        assert facts["dropped_collectives"] == 20_001 - most
    assert "older events dropped" in file.read_text()


@pytest.mark.parametrize("hosts", [0, 2])
def test_survivors_of_a_lost_rank_leave_their_parts(
    launch: Launch, tmp_path: Path, hosts: int
) -> None:
    file = tmp_path / "t.json"
    file.write_text("of an earlier job")
    ended = tmp_path / "ended"
    ended.mkdir()
    launch(
        *("survive", str(PROGRAMS / "timeline.py"), "lose"),
        n=2,
        hosts=hosts,
        timeout=2,
        env=on(file) | {"SURVIVE": str(ended)},
    )
    assert file.read_text() == "of an earlier job"
    part = tmp_path / "t.json.rank-0"
    assert len(spans(part, "allreduce")) == 1
    barriers = spans(part, "barrier")
    assert [e["args"].get("failed", False) for e in barriers] == [False, True]
    assert not list(tmp_path.glob("*.tmp"))


def test_a_rank_that_aborts_leaves_its_part(launch: Launch, tmp_path: Path) -> None:
    launch("timeline", "abort", n=2, env=on(tmp_path / "t.json"))
    assert len(spans(tmp_path / "t.json.rank-1", "allreduce")) == 1


def test_the_next_job_removes_parts_and_what_was_unfinished(passes: Launch, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    for name in ("t.json.rank-0", "t.json.rank-17", "t.json.rank-x", "other.json.rank-0"):
        (tmp_path / name).write_text("old")
    (tmp_path / "t.json.tmp").write_text("cut off" * 10_000)
    passes("timeline", "kinds", n=2, env=on(file))
    names = {"t.json", "t.json.rank-x", "other.json.rank-0"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert len(spans(file, "barrier")) == 2


def test_without_it_nothing_is_written(passes: Launch, tmp_path: Path) -> None:
    passes("timeline", "kinds", n=2, env={"DDL_TIMELINE": "", "TMPDIR": str(tmp_path)})
    assert not list(tmp_path.iterdir())


def test_the_option_goes_before_the_variable(passes: Launch, tmp_path: Path) -> None:
    options = {"DDL_OPTIONS": f"-timeline {tmp_path}/option.json"}
    passes("timeline", "kinds", n=2, env=on(tmp_path / "variable.json") | options)
    assert [path.name for path in tmp_path.iterdir()] == ["option.json"]


def refusal(launch: Launch, file: Path, way: str = "kinds") -> str:
    """The words of ranks that may not write here."""
    done = launch("timeline", way, n=2, env=on(file))
    assert done.returncode != 0
    assert "DDLValueError" in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("folder", "it is a folder; name a file"),
        ("missing/t.json", "No such file or directory"),
        ("file/t.json", "Not a directory"),
        ("fifo", "it is there, and no ordinary file; name another one"),
        ("link", "it is there, and no ordinary file; name another one"),
        ("linked", "linked.tmp is there, and not this job's; remove it, or name another file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_at_the_start(
    launch: Launch, tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("precious")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "linked.tmp").hardlink_to(tmp_path / "file")
    said = refusal(launch, tmp_path / name)
    text = f"cannot write the timeline {tmp_path / name} (-timeline or DDL_TIMELINE): "
    assert text in said
    assert words in said
    assert (tmp_path / "file").read_text() == "precious"


def test_two_jobs_with_one_file(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    with (tmp_path / "t.json.tmp").open("w") as unfinished:
        unfinished.write("of the other job")
        unfinished.flush()
        fcntl.flock(unfinished, fcntl.LOCK_EX)
        assert "another job is writing it; name another file" in refusal(launch, file)
    assert (tmp_path / "t.json.tmp").read_text() == "of the other job"
    assert not file.exists()


def test_ranks_must_name_the_same_file(launch: Launch, tmp_path: Path) -> None:
    said = refusal(launch, tmp_path / "t.json", "differ")
    assert "-timeline (or DDL_TIMELINE) differs between ranks" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_ends_no_job(launch: Launch, tmp_path: Path) -> None:
    mount = shutil.which("mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        [str(mount), "-t", "tmpfs", "-o", "size=16k", "none", str(disk)], check=False
    )
    if made.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (disk / "t.json").write_text("of an earlier job")
        done = launch("timeline", "many", n=2, env=on(disk / "t.json"))
        assert done.returncode == 0, done.stdout + done.stderr
        words = f"cannot write the timeline {disk}/t.json: No space left on device"
        assert done.stderr.count(words) == 1
        assert [path.name for path in disk.iterdir()] == ["t.json"]
        assert (disk / "t.json").read_text() == "of an earlier job"
    finally:
        subprocess.run(["umount", str(disk)], check=True)
