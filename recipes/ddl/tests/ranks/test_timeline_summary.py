"""`python -m ddl.timeline`: known waits and links, real jobs, and errors of one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ddl.timeline.cli import facts_of, report
from ddl.timeline.reading import Call, Message, Rank, Trace
from ddl.timeline.summary import find_links, find_waits

from conftest import Launch

MIB = 1 << 20


def trace(*hosts: str, error: float = 0.0) -> Trace:
    """A job without events."""
    groups = {"0": list(range(len(hosts)))}
    return Trace({n: Rank(host, error, 0, groups) for n, host in enumerate(hosts)})


def call(job: Trace, number: int, *times: tuple[float, float]) -> None:
    """A call of all ranks, with their begins and ends."""
    for rank, (begin, end) in enumerate(times):
        job.calls.append(Call(rank, "0", number, "barrier", 0, begin, end, has_failed=False))


def test_ranks_wait_for_the_last_one() -> None:
    job = trace("a", "a", "b")
    call(job, 1, (10, 101), (40, 101), (100, 101))
    call(job, 2, (200, 251), (250, 251), (200, 251))
    call(job, 3, (300, 310), (400, 410), (300, 410))  # rank 0 has only to send
    waits = find_waits(job)
    assert dict(waits.between) == {(0, 2): 90, (1, 2): 60, (0, 1): 50 + 10, (2, 1): 50 + 100}
    assert dict(waits.waited_for()) == {2: 150, 1: 210}
    assert dict(waits.waited_for_host({0: "a", 1: "a", 2: "b"})) == {"b": 150, "a": 150}
    assert dict(waits.last) == {2: 1, 1: 2}
    assert waits.complete == 3


def test_waits_below_the_error_of_the_clocks_are_none() -> None:
    job = trace("a", "b", "b", error=30)
    call(job, 1, (0, 60), (59, 60), (50, 60))
    assert dict(find_waits(job).between) == {(2, 1): 9}  # of one host, and so of one clock


def test_calls_of_which_events_are_missing_do_not_count() -> None:
    job = trace("a", "a", "a")
    call(job, 1, (0, 100), (90, 100))
    assert find_waits(job).complete == 0


def send(job: Trace, source: int, dest: int, nbytes: int, *times: float) -> None:
    """A message that is posted on both sides, and comes: three times."""
    posted, awaited, come = times
    job.messages.append(Message(source, dest, False, nbytes, posted, come))
    job.messages.append(Message(dest, source, True, nbytes, awaited, come))


def test_links_are_as_fast_as_while_something_was_under_way() -> None:
    job = trace("a", "a", "b", "c")
    send(job, 0, 2, MIB, 1e6, 0, 2e6)  # a second, though awaited for two
    send(job, 1, 2, MIB, 1.5e6, 1.8e6, 2.5e6)  # the same link, half a second more
    send(job, 0, 2, MIB, 5e6, 7e6, 8.5e6)  # posted when nobody waited for it
    send(job, 2, 0, MIB, 0, 0, 1e6)
    send(job, 3, 0, MIB - 1, 0, 0, 9e6)  # too little to say
    send(job, 0, 1, MIB, 0, 0, 9e6)  # on one host
    links = find_links(job)
    assert {hosts: link.rate for hosts, link in links.items()} == {
        ("a", "b"): pytest.approx(MIB),
        ("b", "a"): pytest.approx(MIB),
    }
    job.messages.pop(0)  # too old to be there
    assert find_links(job)["a", "b"].nbytes == 2 * MIB


def test_the_report_names_rank_host_and_link() -> None:
    job = trace("a", "b", "c")
    call(job, 1, (0, 3e6), (0, 3e6), (2e6, 3e6))
    send(job, 0, 1, 10 * MIB, 0, 0, 1e6)
    send(job, 1, 2, MIB, 0, 0, 1e6)
    job.calls.append(Call(0, "0", 2, "broadcast", 8, 4e6, 6e6, has_failed=True))
    assert report(facts_of(job)) == [
        "3 rank(s) on 3 host(s), 6.000 s, 1 calls, clocks within 0 us",
        "all ranks together: 7.000 s in collectives, 57% of it waiting for another rank to come",
        "slowest rank: 2 (host c): others waited 4.000 s for it, last in 1 calls, "
        "4.000 s at most in one",
        "slowest host: c: other hosts' ranks waited 4.000 s",
        "slowest link: b to c: 1.0 MB/s; the median of 2 is 5.8 MB/s",
        "rank 0 waited 2.000 s for rank 2",
        "rank 1 waited 2.000 s for rank 2",
        "rank 0: broadcast failed after 2.000 s",
    ]


def test_the_report_tells_late_once_from_late_often() -> None:
    job = trace("a", "a", "a")
    call(job, 1, (0, 501e3), (500e3, 501e3), (10e3, 501e3))
    for number in range(2, 8):
        begin, end = number * 1e6, number * 1e6 + 51e3
        call(job, number, (begin, end), (begin, end), (begin + 50e3, end))
    assert report(facts_of(job))[2:4] == [
        "slowest rank: 1 (host a): others waited 0.990 s for it, last in 1 calls, "
        "0.990 s at most in one",
        "last most often: 2 (host a): in 6 calls, others waited 0.600 s for it",
    ]


def summary(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ddl.timeline", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def facts(file: Path) -> dict[str, Any]:
    done = summary(file, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(("n", "hosts"), [(1, 0), (4, 0), (4, 2)])
def test_the_late_rank_of_a_job_is_named(
    passes: Launch, tmp_path: Path, n: int, hosts: int
) -> None:
    file = tmp_path / "t.json"
    passes("timeline", "kinds", n=n, hosts=hosts, env={"DDL_TIMELINE": str(file)})
    found = facts(file)
    assert (found["ranks"], found["hosts"]) == (n, max(hosts, 1))
    if n == 1:
        assert found["waits"] == []
        return
    assert found["waited_for_rank"][0]["rank"] == n - 1
    assert found["waited_for_rank"][0]["seconds"] > 0.5 * (n - 1) * 0.3
    if hosts:
        assert found["waited_for_host"][0]["host"] == found["waited_for_rank"][0]["host"]


def test_parts_of_a_failed_job_are_read_together_and_joined(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    ended = tmp_path / "ended"
    ended.mkdir()
    program = Path(__file__).parent / "programs" / "timeline.py"
    env = {"DDL_TIMELINE": str(file), "SURVIVE": str(ended)}
    launch("survive", str(program), "lose", n=3, timeout=20, env=env)
    found = facts(file)
    assert found["ranks"] == 2
    assert found["lost_ranks"] == [2]
    assert found["calls"] == 3
    assert {failed["rank"] for failed in found["failed"]} == {0, 1}
    assert "1 rank(s) left no events: 2" in summary(file).stdout.splitlines()
    done = summary("--join", file)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{file} has the parts of 2 rank(s)\n"
    assert {path.name for path in tmp_path.iterdir()} == {"t.json", "ended"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert facts(file) == found


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"traceEvents": 5}', '{"traceEvents": [5]}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "t.json"
    file.write_text(text)
    done = summary(file)
    assert done.returncode == 1
    assert done.stderr == f"ddl.timeline: {file} is not a timeline of ddl\n"


def test_errors_of_files_are_one_line(tmp_path: Path) -> None:
    for words, text in [
        ([tmp_path / "none.json"], f"{tmp_path}/none.json: No such file or directory"),
        ([tmp_path], f"{tmp_path}: Is a directory"),
        ([tmp_path / "none.json", "--join"], f"there is no {tmp_path}/none.json.rank-N to join"),
    ]:
        done = summary(*words)
        assert (done.returncode, done.stderr) == (1, f"ddl.timeline: {text}\n")
    part = tmp_path / "t.json.rank-0"
    part.write_text('{"traceEvents": []}')
    (tmp_path / "t.json").mkdir()
    done = summary(tmp_path / "t.json", "--join")
    assert done.stderr == f"ddl.timeline: cannot write {tmp_path}/t.json: Is a directory\n"
    assert {path.name for path in tmp_path.iterdir()} == {"t.json", "t.json.rank-0"}
