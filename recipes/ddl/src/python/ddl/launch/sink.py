"""Writes to our own standard files, whatever they are: full, gone, or not blocking."""

import os
import select


class Sink:
    """Output that `write` gathers and `flush` writes. It goes on after an error, and keeps it.

    Attributes:
        lost: why output could not be written; "" if all was.
    """

    def __init__(self, file: int) -> None:
        self.lost = ""
        self._file = file
        self._data = bytearray()

    def write(self, data: bytes) -> None:
        """Keeps the data until `flush`."""
        self._data += data

    def flush(self) -> None:
        """Writes what there is.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        data, self._data = bytes(self._data), bytearray()
        if not data:
            return
        try:
            write_all(self._file, data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.lost = error.strerror or str(error)


def write_all(file: int, data: bytes) -> None:
    """Writes all of the data; waits where the file is full for now.

    Raises:
        OSError: it cannot be written.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(file, rest) :]
        except BlockingIOError:  # another program has made it so: ssh, and node, do
            poll = select.poll()
            poll.register(file, select.POLLOUT)
            poll.poll()


def hold_standard_files() -> None:
    """Opens those of the files 0 to 2 that are closed, or a pipe of ours would take their place."""
    for file in (0, 1, 2):
        try:
            os.fstat(file)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
