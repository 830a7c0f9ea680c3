"""A rank's side of its companion: starts it, gives it calls, and takes the answers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing import Pipe, reduction
from typing import TYPE_CHECKING, Any

import torch
from ddl.launch.variables import is_foreign, is_of_a_task

from ddl_torch.companion.buffers import Buffers
from ddl_torch.companion.messages import READY, SIGNALS, Answer, Begin, Buffer, Call, Lost, Place

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

_MORE = 30.0  # seconds for a companion to start, beside those in which the ranks meet


class CompanionError(RuntimeError):
    """An operation of a group has failed, or the group has been given up."""


class Companion:
    """The process that communicates for this rank. It ends with this one, however that ends."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        self._orders, self._owner = ours, os.getpid()
        # The rank's own launcher speaks to the rank, not to a process of it.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not is_foreign(name) and not is_of_a_task(name)
        }
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        # -P: nothing of the current folder is loaded.
        words = [sys.executable, *flags, "-P", "-m", "ddl_torch.companion.process"]
        # It begins with these held back, since it imports torch before it can ignore them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*words, str(theirs.fileno()), str(self._owner)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=environment,
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def begin(self, order: Begin) -> Group:
        """Become a rank of a new group; the group before ends. `Group.wait` waits for the others.

        Raises:
            CompanionError: the companion has ended.
        """
        ours, theirs = Pipe()
        try:
            with theirs:
                self._orders.send(order)
                reduction.send_handle(self._orders, theirs.fileno(), self._process.pid)
        except OSError:
            ours.close()
            raise CompanionError("the companion process of this rank has ended") from None
        return Group(ours, order)

    def end_group(self) -> None:
        """End the group, if there is one; it has ended when this returns."""
        with contextlib.suppress(OSError, EOFError):
            self._orders.send(None)
            self._orders.recv()

    def end(self) -> None:
        """End the process, and the group with it; nothing in a process that this one has forked."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(OSError):  # others that were forked may hold our end, too
            with socket.socket(fileno=os.dup(self._orders.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
        self._orders.close()
        self._process.wait()


class Group:
    """One group of a companion.

    Attributes:
        error: that of its first failure; all later calls fail, too.
    """

    def __init__(self, channel: Connection, order: Begin) -> None:
        self.error: CompanionError | None = None
        self._lost: CompanionError | None = None  # a rank, which may have had its last result
        self._channel, self._order = channel, order
        self._buffers = Buffers(self._send_buffer)
        self._calls = 0
        self._lock = threading.Lock()  # of what follows, and of what is sent
        self._pending: dict[int, Callable[[Exception | None], None]] = {}
        self._ready: torch.futures.Future[None] = torch.futures.Future()
        self._expect(READY, self._ready)
        threading.Thread(target=self._listen, name="ddl-companion", daemon=True).start()

    def wait(self) -> None:
        """Wait for the other ranks.

        Raises:
            CompanionError: some did not come within the order's seconds, or this group was ended.
        """
        timer = threading.Timer(
            self._order.seconds + _MORE, self.fail, ["it did not start in time"]
        )
        timer.daemon = True
        timer.start()
        try:
            self._ready.wait()
        finally:
            timer.cancel()

    def call(
        self,
        name: str,
        arguments: tuple[Any, ...],
        written: list[torch.Tensor],
        read: list[torch.Tensor],
    ) -> torch.futures.Future[list[torch.Tensor]]:
        """Have the group carry out an operation: its future, with the tensors `written`.

        In a group that has failed, the future has the error. It is not raised: torchft 0.2 would
        go on with a work that its DistributedDataParallel does not know.

        Args:
            name: of the method of torch's ProcessGroup.
            arguments: as it takes them; tensors may be in lists, and in lists of lists.
            written: the tensors among them that it fills.
            read: those that it reads; one may be in both.
        """
        done: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        with self._lock:
            self.error = self.error or self._lost
            if self.error:
                done.set_exception(self.error)
                return done
            places: dict[int, Place] = {}
            try:
                for tensor in (*read, *written):
                    if id(tensor) not in places:
                        places[id(tensor)] = self._buffers.take(tensor)
            except OSError as error:
                self._give_back(places)
                self.error = CompanionError(f"{name}: no memory to share: {error.strerror}")
                done.set_exception(self.error)
                return done
            for tensor in read:
                self._buffers.at(places[id(tensor)]).copy_(tensor.detach())
            self._calls += 1
            number = self._calls

            def fill() -> list[torch.Tensor]:
                for tensor in written:
                    tensor.detach().copy_(self._buffers.at(places[id(tensor)]))
                give_back()
                return written

            def give_back() -> None:
                with self._lock:
                    self._give_back(places)

            self._expect(number, done, fill, give_back)
            self._send(Call(number, name, _packed(arguments, places)))
        return done

    def _give_back(self, places: dict[int, Place]) -> None:
        for place in places.values():
            self._buffers.give_back(place)

    def fail(self, why: str) -> None:
        """Let all operations fail, those under way and those to come."""
        with self._lock:
            self.error = self.error or CompanionError(why)
            pending, self._pending = self._pending, {}
        for end in pending.values():
            _aside(end, self.error)

    def _lose(self, why: str) -> None:
        """A rank has left: what waits for it fails, and so does what comes later."""
        with self._lock:
            self._lost = CompanionError(why)
            is_waiting = bool(self._pending)
        if is_waiting:
            self.fail(why)

    def _expect(
        self,
        number: int,
        done: torch.futures.Future[Any],
        result: Callable[[], Any] = lambda: None,
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        def end(error: Exception | None) -> None:
            if error is None:
                try:
                    done.set_result(result())
                except Exception as own:
                    done.set_exception(own)
            else:
                if not isinstance(error, CompanionError):  # the companion has ended this call, too
                    refused()
                done.set_exception(error)

        self._pending[number] = end

    def _send(self, message: object) -> None:
        with contextlib.suppress(OSError):  # `_listen` sees the end
            self._channel.send(message)

    def _send_buffer(self, number: int, file: int, nbytes: int) -> None:
        with contextlib.suppress(OSError):
            self._channel.send(Buffer(number, nbytes))
            reduction.send_handle(self._channel, file, 0)

    def _listen(self) -> None:
        with self._channel:
            while True:
                try:
                    answer: Answer | Lost = self._channel.recv()
                except (EOFError, OSError):
                    self.fail("the process that communicates for this rank has ended")
                    return
                if isinstance(answer, Lost):
                    self._lose(answer.error)
                    continue
                error = _error_of(answer)
                with self._lock:
                    if isinstance(error, CompanionError):
                        self.error = self.error or error
                    end = self._pending.pop(answer.number, None)
                if end:
                    _aside(end, error)


def _aside(end: Callable[[Exception | None], None], error: Exception | None) -> None:
    """End an operation. Its callbacks may wait for another one, so it has a thread of its own."""
    threading.Thread(target=end, args=(error,), name="ddl-companion-end", daemon=True).start()


def _error_of(answer: Answer) -> Exception | None:
    if not answer.error:
        return None
    return ValueError(answer.error) if answer.is_refused else CompanionError(answer.error)


def _packed(argument: Any, places: dict[int, Place]) -> Any:
    """The same with places for tensors."""
    if isinstance(argument, torch.Tensor):
        return places[id(argument)]
    if isinstance(argument, (list, tuple)):
        return type(argument)(_packed(one, places) for one in argument)
    return argument
