"""Runs a function as ranks, from a cell of a notebook or from any other Python program.

    from ddl import notebook

    def train(rate):
        import ddl
        ...
        return ddl.rank()

    notebook.run(train, 0.1, ranks=4)  # [0, 1, 2, 3]

The ranks are processes of their own on this host, started by `ddlrun`. What they print is shown
with their number while they run.
"""

import codecs
import linecache
import os
import pickle
import re
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from ddl import _notebook_rank as rank_side
from ddl.launch.outcome import EXIT_TIMEOUT
from ddl.launch.own import own_python
from ddl.launch.run import die_with_parent

_END_TIMEOUT_S = 15.0  # that ddlrun has to end its ranks; longer than it needs


class SendError(TypeError):
    """The function or an argument cannot be sent to the ranks; nothing was started."""


class RunError(RuntimeError):
    """The ranks did not all give a result; the message has ddlrun's own words."""


class RankError(RunError):
    """A rank's function raised an exception, which is the cause of this one where it could be sent.

    Attributes:
        rank: the first that failed.
        traceback: the text of its traceback.
    """

    def __init__(self, rank: int, summary: str, traceback: str) -> None:
        super().__init__(f"rank {rank} raised {summary}\n\n{traceback}")
        self.rank = rank
        self.traceback = traceback


def run(
    fn: Callable[..., Any], *args: Any, ranks: int = 4, timeout: float | None = None
) -> list[Any]:
    """Run `fn(*args)` on each of `ranks` new processes of this host, and wait for all of them.

    Functions of the notebook itself are sent by cloudpickle. Without that package, only functions
    of modules can be sent. KeyboardInterrupt, as Jupyter's "interrupt" raises it, ends all ranks.

    Args:
        fn: the function; inside, `import ddl` or torch.distributed know rank and size.
        args: sent to all ranks, by pickle.
        ranks: how many.
        timeout: seconds after which all ranks are ended; None: no limit.

    Returns:
        The results, by rank.

    Raises:
        SendError: `fn` or one of `args` cannot be sent.
        RankError: `fn` raised an exception on a rank; that of the rank which failed first.
        RunError: a rank ended without a result, or the ranks could not be started.
        TimeoutError: they did not end in time.
        ValueError: `ranks` or `timeout` is no such number.
    """
    if not callable(fn):
        raise SendError(f"run(): {fn!r} is not a function")
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"ranks={ranks!r}: not a whole number from 1")
    if timeout is not None and not 0 < timeout < 1e9:
        raise ValueError(f"timeout={timeout!r}: not a number of seconds above 0")
    path = [part or str(Path.cwd()) for part in sys.path]
    call = pickle.dumps((path, _cells(), _pack(fn, args)))
    with tempfile.TemporaryDirectory(prefix="ddl-run-") as folder:  # 0700, with a random name
        rank_side.write_private(f"{folder}/{rank_side.CALL}", call)
        words = own_python("-m", "ddl.launch.cli", "-H", f"localhost:{ranks}")
        words += ["-timeout", str(timeout)] if timeout is not None else []
        words += own_python(rank_side.__file__, folder)
        status, said = _launch(words)
        return _results(Path(folder), ranks, status, said, timeout)


def _cells() -> dict[str, list[str]]:
    """The lines of a notebook's cells, which are in no file: a rank's traceback shows them."""
    known = [(name, entry) for name, entry in linecache.cache.items() if len(entry) == 4]
    return {name: entry[2] for name, entry in known if not Path(name).exists()}


def _pack(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """The function and its arguments as bytes."""
    dumps, by_value = rank_side.pickler()
    if not by_value and getattr(fn, "__module__", None) == "__main__":
        raise SendError(
            f"{_name(fn)} is defined here and not in a module, and cannot be sent without the "
            "package cloudpickle: install that, or move the function into a module"
        )
    try:
        return dumps((fn, args))
    except Exception:
        for what, value in [(_name(fn), fn), *((f"argument {n}", a) for n, a in enumerate(args))]:
            try:
                dumps(value)
            except Exception as error:
                raise SendError(
                    f"{what} ({type(value).__name__}) cannot be sent to the ranks: {error}"
                ) from error
        raise


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)


def _launch(words: list[str]) -> tuple[int, list[str]]:
    """Run ddlrun and show what the ranks print; its exit status, and its own words."""
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C comes to us alone; we pass it on
        preexec_fn=die_with_parent,  # a kernel that is killed leaves no ranks
    )
    assert process.stdout
    assert process.stderr
    shown = {process.stdout: _Shown(sys.stdout), process.stderr: _Shown(sys.stderr)}
    interrupted = False
    try:
        with selectors.DefaultSelector() as selector:
            for pipe in shown:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                try:
                    for key, _ in selector.select():
                        pipe = process.stdout if key.fileobj is process.stdout else process.stderr
                        data = os.read(key.fd, 1 << 16)
                        if not data:
                            selector.unregister(pipe)
                        shown[pipe].feed(data)
                except KeyboardInterrupt:
                    interrupted = True
                    process.send_signal(signal.SIGINT)
        status = process.wait()
    finally:
        _end(process)
    if interrupted:
        raise KeyboardInterrupt
    return status, shown[process.stderr].own


class _Shown:
    """Writes a stream of ddlrun's to one of ours, and keeps ddlrun's own lines."""

    def __init__(self, sink: TextIO) -> None:
        self.own: list[str] = []
        self._sink = sink
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""

    def feed(self, data: bytes) -> None:
        text = self._decoder.decode(data, final=not data)
        self._sink.write(text)
        self._sink.flush()
        *lines, self._line = (self._line + text).split("\n")
        self.own += [line for line in lines if line.startswith("ddlrun: ")]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Leave nothing behind, whatever was raised."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


def _results(
    folder: Path, ranks: int, status: int, said: list[str], timeout: float | None
) -> list[Any]:
    """What the ranks left in the folder, as results or as the exception that says what failed."""
    found = {rank: rank_side.read_answer(str(folder), rank) for rank in range(ranks)}
    failures = [answer for answer in found.values() if isinstance(answer, rank_side.Failure)]
    if failures:
        first = min(failures, key=lambda failure: failure.at)
        raise RankError(first.rank, first.summary, first.traceback) from _cause(first)
    if status == EXIT_TIMEOUT and timeout is not None:
        raise TimeoutError("\n".join(said) or f"the ranks did not end within {timeout:g} s")
    missing = [rank for rank, answer in found.items() if answer is None]
    if status or missing:
        lost = f"no result of rank {', '.join(map(str, missing))}; " if missing else ""
        words = "\n".join(re.sub("^ddlrun: ", "", line) for line in said)
        raise RunError(f"{lost}ddlrun ended with status {status}\n{words}".rstrip())
    results = []
    for rank, answer in found.items():
        assert isinstance(answer, bytes)
        try:
            results.append(pickle.loads(answer))
        except Exception as error:
            raise RunError(f"the result of rank {rank} cannot be loaded here: {error}") from error
    return results


def _cause(failure: rank_side.Failure) -> BaseException | None:
    """The exception itself, where it can be had."""
    try:
        error = pickle.loads(failure.exception)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None
