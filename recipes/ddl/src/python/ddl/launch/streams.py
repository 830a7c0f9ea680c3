"""The ranks' output, as whole lines with their rank and host, and their wrappers' reports."""

import re
from collections.abc import Callable

from ddl.launch.awake import now
from ddl.launch.marked_stream import MarkedStream
from ddl.launch.ranks import Rank
from ddl.launch.sink import Sink

PROMPT = 0.05  # seconds after which an unfinished line is a question, and shown
LONGEST = 64 << 20  # bytes of a line: longer ones are passed on in such pieces
_MOST = 80  # bytes of a report
_TAIL_LINE = 500  # bytes of a line that is repeated after a failure
_ABORT = re.compile(rb"Abort\((-?\d+)\) on node \d+")  # printed by the rank that calls MPI_Abort

Report = Callable[[Rank, str], None]


class Stream:
    """One of stdout and stderr.

    Lines of several ranks are never mixed. Rank 0 alone reads standard input, so it alone can ask:
    its unfinished line is shown after a moment. Should another rank's line come then, the shown
    one ends there, and its rest follows as a line of its own.
    """

    def __init__(
        self,
        ranks: list[Rank],
        token: bytes,
        report: Report,
        demultiplexer: MarkedStream,
        own_words: Callable[[bytes], None],
        sink: Sink,
    ) -> None:
        self.sink = sink
        self._ranks = ranks
        self._report = report
        self._demultiplexer = demultiplexer
        self._own_words = own_words
        self._partial = [bytearray() for _ in ranks]
        self._shown = 0  # how much of rank 0's unfinished line is shown already
        self._open = False  # whether that is the last thing that was written
        self._returned: Rank | None = None  # its line was the last, and ended with \r
        self._grown: float | None = None  # when rank 0's unfinished line did, after it was shown
        self._begin_of_report = b"\x1f" + token + b" "
        self._whole_report = re.compile(rb"\x1f" + token + rb" ([a-z]+(?: [\d.]+)*)\n")

    def feed(self, data: bytes) -> None:
        """Passes on the complete parts of `data`; empty: the end of the stream."""
        for number, piece in self._demultiplexer.feed(data):
            if number is None:
                self._own_words(piece)
            elif number < len(self._ranks):
                self._piece(self._ranks[number], piece)
        if not data:
            for rank in self._ranks:
                self._end_line(rank)
        self.sink.flush()

    def asks_at(self) -> float | None:
        """The moment (of awake.now) from which an unfinished line is to be shown."""
        is_due = self._grown is not None and len(self._partial[0]) > self._shown
        return (self._grown or 0.0) + PROMPT if is_due else None

    def show_question(self) -> None:
        """Shows rank 0's unfinished line."""
        rank, text = self._ranks[0], self._partial[0]
        report = text.rfind(b"\x1f", max(self._shown, len(text) - _MOST))  # a torn one
        end = len(text) if report < 0 else report
        if end > self._shown:
            self._write(rank, bytes(text[self._shown : end]), is_new=not self._open)
            self._shown, self._open = end, True
            self.sink.flush()
        self._grown = None

    def _piece(self, rank: Rank, piece: bytes) -> None:
        partial = self._partial[rank.number]
        if piece[:1] == b"\n" and not partial and self._returned is rank:
            self.sink.write(b"\n")  # of a torn \r\n
            piece, self._returned = piece[1:], None
        for line in piece.splitlines(keepends=True):
            partial += line
            if line.endswith((b"\n", b"\r")):
                self._line(rank)
            elif len(partial) > LONGEST:
                self._end_line(rank)
        if rank.number == 0:
            self._grown = now()

    def _line(self, rank: Rank) -> None:
        """A line is complete: it is a rank's own, or a report follows an unfinished one."""
        partial = self._partial[rank.number]
        begin = partial.rfind(self._begin_of_report, max(0, len(partial) - _MOST))
        report = self._whole_report.fullmatch(partial, begin) if begin >= 0 else None
        if report:
            text = report[1].decode()
            del report  # it holds on to the bytes
            del partial[begin:]
            if text.startswith(("exit", "signal")):
                self._end_line(rank)
            self._report(rank, text)
            return
        line = bytes(partial)
        partial.clear()
        self._pass_on(rank, line)

    def _end_line(self, rank: Rank) -> None:
        """Passes on a line that has no end of its own."""
        partial = self._partial[rank.number]
        if partial:
            line = bytes(partial) + b"\n"
            partial.clear()
            self._pass_on(rank, line)

    def _pass_on(self, rank: Rank, line: bytes) -> None:
        rank.tail.append(line[:_TAIL_LINE].rstrip(b"\r\n"))
        is_rest = rank.number == 0 and self._shown > 0
        if is_rest:
            rest, self._shown = line[self._shown :], 0
            if self._open or rest.strip(b"\r\n"):
                self._write(rank, rest, is_new=not self._open)
        else:
            self._write(rank, line, is_new=True)
        self._returned = rank if line.endswith(b"\r") else None
        if _ABORT.match(line):
            self._report(rank, "abort")

    def _write(self, rank: Rank, text: bytes, *, is_new: bool) -> None:
        if is_new:
            tag = b"[%d@%s] " % (rank.number, rank.host.encode())
            self.sink.write(b"\n" + tag if self._open else tag)
        self.sink.write(text)
        self._open = False
