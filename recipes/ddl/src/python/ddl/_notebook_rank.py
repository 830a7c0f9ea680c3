"""What a rank of `ddl.notebook.run` does: `python -P _notebook_rank.py FOLDER`.

The folder is the caller's, and closed to others. It has the call, and gets one answer of each
rank. The caller uses the same functions, so that both sides agree on the files.
"""

import linecache
import os
import pickle
import stat
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

CALL = "call"


@dataclass(frozen=True)
class Failure:
    """What became of a rank whose function raised.

    Attributes:
        rank: its number.
        at: when, in seconds since 1970; all ranks are on one host.
        summary: the exception's type and message.
        traceback: as Python prints it, without our own frames.
        exception: the exception, pickled; empty where it cannot be.
    """

    rank: int
    at: float
    summary: str
    traceback: str
    exception: bytes


def pickler() -> tuple[Callable[[Any], bytes], bool]:
    """How objects become bytes, and whether functions of `__main__` travel with their code."""
    try:
        import cloudpickle  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return pickle.dumps, False
    return cloudpickle.dumps, True


def write_private(path: str, data: bytes) -> None:
    """Write a new file that only this user may read; there is no moment when it is half-written."""
    partial = f"{path}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
        file.write(data)
    os.rename(partial, path)  # noqa: PTH104


def read_private(path: str) -> bytes:
    """Read such a file; what comes out of it is run.

    Raises:
        PermissionError: it belongs to somebody else, or others may change it.
        OSError: it is not there, or a link.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(f"{path} is not this user's alone")
        return file.read()


def read_answer(folder: str, rank: int) -> "bytes | Failure | None":
    """A rank's pickled result, its failure, or None where it left neither."""
    try:
        answer = pickle.loads(read_private(f"{folder}/{rank}"))
    except FileNotFoundError:
        return None
    assert isinstance(answer, bytes | Failure)
    return answer


def main() -> None:
    """Runs the call and leaves the answer; ends as a program does whose exception nobody caught."""
    # Both sides pickle `Failure` under this name. Run as a script, this module is `__main__`.
    from ddl import _notebook_rank as shared

    folder, rank = sys.argv[1], int(os.environ["RANK"])
    path, cells, call = pickle.loads(read_private(f"{folder}/{CALL}"))
    sys.path[:] = path
    sys.argv[:] = [""]
    for name, lines in cells.items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    try:
        fn, args = pickle.loads(call)
        result = fn(*args)
        try:
            answer = pickler()[0](result)
        except Exception as error:
            raise shared.unsendable(result, error) from error
    except BaseException as error:
        failure = shared.failure(rank, error)
        write_private(f"{folder}/{rank}", pickle.dumps(failure))
        sys.excepthook = _say_nothing  # the caller raises it
        if isinstance(error, SystemExit):
            raise RuntimeError(failure.summary) from error  # else ddl takes it for a good end
        raise
    write_private(f"{folder}/{rank}", pickle.dumps(answer))


def unsendable(result: object, error: Exception) -> TypeError:
    """A result that no pickle can hold."""
    return TypeError(f"the result ({type(result).__name__}) cannot be sent: {error}")


def failure(rank: int, error: BaseException) -> Failure:
    """What is told of an exception."""
    frames = error.__traceback__.tb_next if error.__traceback__ else None  # without ours
    text = "".join(traceback.format_exception(type(error), error, frames))
    summary = "".join(traceback.format_exception_only(type(error), error)).strip()
    try:
        exception = pickler()[0](error)
        pickle.loads(exception)
    except Exception:
        exception = b""
    return Failure(rank, time.time(), summary, text, exception)


def _say_nothing(
    kind: type[BaseException], error: BaseException, where: "TracebackType | None"
) -> None:
    pass


if __name__ == "__main__":
    main()
