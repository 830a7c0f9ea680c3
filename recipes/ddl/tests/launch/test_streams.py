"""Taking Hydra's marked output apart, however it is cut."""

import io
import os
import random
import re
import sys
import time
from pathlib import Path

import pytest
from ddl.launch.bind import cores_by_node
from ddl.launch.hydra import escape
from ddl.launch.marked_stream import MarkedStream
from ddl.launch.rank import unescape
from ddl.launch.ranks import Clocks, Rank, first_failure
from ddl.launch.streams import Stream

MARK = "<0123456789ab:"
STREAM = (
    b"<0123456789ab:0>whole line\n"
    b"<0123456789ab:12>torn <0123456789ab:0>with < inside and <0123456789a\n"
    b"<0123456789ab:12>apart\n"
    b"[mpiexec] own words <01\n"
    b"<0123456789ab:0>last, without a newline"
)


def by_rank(pieces: list[tuple[int | None, bytes]]) -> dict[int | None, bytes]:
    found: dict[int | None, bytes] = {}
    for rank, piece in pieces:
        found[rank] = found.get(rank, b"") + piece
    return found


def test_every_cut_gives_the_same() -> None:
    expected = {
        0: b"whole line\nwith < inside and <0123456789a\nlast, without a newline",
        12: b"torn apart\n",
        None: b"[mpiexec] own words <01\n",
    }
    assert by_rank(list(MarkedStream(MARK).feed(STREAM))) == expected
    for cut in range(len(STREAM)):
        stream = MarkedStream(MARK)
        assert by_rank([*stream.feed(STREAM[:cut]), *stream.feed(STREAM[cut:])]) == expected
    generator = random.Random(1)
    for _ in range(200):
        stream, pieces, rest = MarkedStream(MARK), [], STREAM
        while rest:
            size = generator.randrange(1, 9)
            pieces += stream.feed(rest[:size])
            rest = rest[size:]
        assert by_rank(pieces) == expected


class Shown:
    """A stream of two ranks: what it wrote and what it was told."""

    def __init__(self) -> None:
        self.sink = io.BytesIO()
        self.reports: list[str] = []
        ranks = [Rank(0, "a"), Rank(1, "b")]
        self.stream = Stream(
            ranks,
            b"token",
            lambda rank, text: self.reports.append(f"{rank.number} {text}"),
            MarkedStream(MARK),
            lambda words: None,
            self.sink,
        )

    def feed(self, rank: int, text: str) -> str:
        """As mpiexec marks it: before each line, and each piece of one."""
        lines = re.split(r"(?<=\n)(?=.)", text, flags=re.DOTALL)
        self.stream.feed("".join(f"{MARK}{rank}>{line}" for line in lines).encode())
        return self.text()

    def text(self) -> str:
        return self.sink.getvalue().decode()


def test_a_question_is_shown_and_its_line_goes_on() -> None:
    shown = Shown()
    assert shown.stream.asks_at() is None
    assert shown.feed(0, "Name? ") == ""
    assert shown.stream.asks_at() is not None
    shown.stream.show_question()
    assert shown.text() == "[0@a] Name? "
    assert shown.stream.asks_at() is None
    assert shown.feed(0, "Hello\n") == "[0@a] Name? Hello\n"


def test_another_ranks_line_ends_a_question() -> None:
    shown = Shown()
    shown.feed(0, "Name? ")
    shown.stream.show_question()
    assert shown.feed(1, "busy\n") == "[0@a] Name? \n[1@b] busy\n"
    assert shown.feed(0, "Hello\n") == "[0@a] Name? \n[1@b] busy\n[0@a] Hello\n"


def test_another_ranks_unfinished_line_is_not_shown() -> None:
    shown = Shown()
    shown.feed(1, "half")
    shown.stream.show_question()
    assert shown.text() == ""
    assert shown.feed(0, "whole\n") == "[0@a] whole\n"
    assert shown.feed(1, " line\n") == "[0@a] whole\n[1@b] half line\n"


@pytest.mark.parametrize("cut", range(1, 24))
def test_reports_within_a_line_leave_no_trace(cut: int) -> None:
    shown = Shown()
    text = "Name\x1ftoken input 9 0 1.5\n? yes\n"
    shown.feed(0, text[:cut])
    shown.stream.show_question()
    shown.feed(0, text[cut:])
    assert shown.text() == "[0@a] Name? yes\n"
    assert shown.reports == ["0 input 9 0 1.5"]


def test_a_report_of_the_end_ends_a_line() -> None:
    shown = Shown()
    shown.feed(0, "half\x1ftoken exit 3 0 1.5\n")
    assert (shown.text(), shown.reports) == ("[0@a] half\n", ["0 exit 3 0 1.5"])


def test_carriage_returns_however_they_are_torn() -> None:
    shown = Shown()
    shown.feed(0, "1%\r2%\r")
    assert shown.feed(0, "\n") == "[0@a] 1%\r[0@a] 2%\r\n"
    shown.feed(0, "dos\r")
    assert shown.feed(0, "\nnext\n").endswith("[0@a] dos\r\n[0@a] next\n")


def test_a_long_line_takes_time_that_grows_with_it_only() -> None:
    """8 MB in pieces of 4 KiB: each byte would be copied a thousand times."""
    shown, piece = Shown(), b"a" * 4096
    shown.feed(0, "")
    began = time.process_time()
    for _ in range(2048):
        shown.stream.feed(piece)
    shown.stream.feed(b"\n")
    assert time.process_time() - began < 1.5
    assert len(shown.text()) == 2048 * 4096 + len("[0@a] \n")


def failed(number: int, end: str, at: float, *, was_told: bool = False) -> Rank:
    return Rank(number, "a", end=end, ended_at=at, was_told=was_told)


@pytest.mark.parametrize(
    ("ends", "first"),
    [
        ([failed(0, "exit 1", 2.0), failed(1, "exit 1", 1.0)], 1),
        ([failed(0, "exit 1", 1.0), failed(1, "signal 9", 1.1)], 1),
        ([failed(0, "signal 6", 1.0), failed(1, "signal 9", 1.1)], 1),
        ([failed(0, "signal 15", 1.0, was_told=True), failed(1, "exit 3", 1.1)], 1),
        ([failed(0, "exit 1", 1.0), failed(1, "abort", 1.1)], 1),
    ],
)
def test_which_of_several_failures_is_named(ends: list[Rank], first: int) -> None:
    named = first_failure(ends)
    assert named
    assert named.number == first


def test_hosts_whose_clocks_differ() -> None:
    """The quicker report of a host tells how far its clock is from ours."""
    clocks = Clocks()
    assert clocks.ours("a", 1000.0, 5.0) == 5.0
    assert clocks.ours("a", 1001.0, 6.5) == 6.0
    assert clocks.ours("b", 7.0, 7.0) == 7.0


def test_words_survive_mpiexec() -> None:
    for word in (":", "\\:", "\\\\:", "a:", ":b", "", "\\", "::"):
        assert unescape(escape(word)) == word
        assert escape(word) != ":"


def test_cores_are_those_we_may_use() -> None:
    nodes = cores_by_node(os.sched_getaffinity(0)).values()
    cpus = [cpu for cores in nodes for core in cores for cpu in core]
    assert sorted(cpus) == sorted(os.sched_getaffinity(0))


def test_import_is_light() -> None:
    """ddlrun starts on machines where MPI does not, and at once."""
    import subprocess

    code = "import sys, ddl.launch.cli, ddl.launch.run, ddl.launch.hydra; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"numpy", "torch", "argparse", "asyncio", "multiprocessing", "mpi4py", "ddl._ddl"}
    assert not heavy & set(modules)
    assert not [name for name in modules if name.startswith("ddl.") and "launch" not in name]


def test_no_file_of_the_launcher_is_missing() -> None:
    from ddl.launch.hydra import WRAPPER

    assert Path(WRAPPER).is_file()
