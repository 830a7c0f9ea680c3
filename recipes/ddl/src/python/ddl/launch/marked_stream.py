"""Takes the mixed output of Hydra's ranks apart."""

import re
from collections.abc import Iterator


class MarkedStream:
    """Hydra puts the mark and the rank before every line and every torn piece of one."""

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()
        self._begin = re.compile(re.escape(self._mark) + rb"(\d+)>")
        self._rank: int | None = None  # whose piece we are in
        self._rest = b""  # perhaps the begin of a mark

    def feed(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        """Pieces with their rank; `data` may be cut anywhere."""
        data = self._rest + data
        done = 0
        for match in self._begin.finditer(data):
            yield from self._pieces(data[done : match.start()])
            self._rank, done = int(match[1]), match.end()
        data = data[done:]
        cut = self._begin_of_mark(data)
        self._rest = data[cut:]
        yield from self._pieces(data[:cut])

    def _pieces(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        """Data up to the first newline is the rank's; unmarked data behind it is mpiexec's own."""
        if self._rank is not None and (end := data.find(b"\n") + 1):
            yield self._rank, data[:end]
            self._rank, data = None, data[end:]
        if data:
            yield self._rank, data

    def _begin_of_mark(self, data: bytes) -> int:
        """The index at which a mark may begin that the data's end cuts off."""
        start = data.rfind(self._mark[:1])
        if start < 0:
            return len(data)
        tail = data[start:]
        whole = tail[len(self._mark) :]
        cut_off = self._mark.startswith(tail) or (
            tail.startswith(self._mark) and (not whole or whole.isdigit())
        )
        return start if cut_off else len(data)
