"""The companion: `python -m ddl_torch.companion.process DESCRIPTOR RANK`, started by `client.py`.

RANK is the number of the rank's process. The companion loads torch and MPI once, and forks a
*member* for each group: so a new group costs no start of an interpreter. A member that has begun
MPI is good for that group alone. It is killed when the next one begins, when the rank ends, and
when this process does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from datetime import timedelta
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from ddl.launch import sweep

from ddl_torch.companion.buffers import mapped, tensor_at
from ddl_torch.companion.messages import (
    READY,
    SIGNALS,
    Answer,
    Begin,
    Buffer,
    Call,
    Lost,
    Options,
    Place,
)
from ddl_torch.companion.watch import watch

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve the process that has started us, until it ends."""
    import ddl  # noqa: F401 (loads MPI, which the members then need not)

    from ddl_torch import _backend  # noqa: F401

    orders, rank, begun = Connection(int(sys.argv[1])), int(sys.argv[2]), time.time()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # `client.py` has started us so
    watched = select.poll()
    watched.register(orders.fileno(), select.POLLIN)
    ours = [orders.fileno()]
    # A process that the rank has forked may hold the other end of our socket when the rank is gone.
    pause = None
    try:
        ours.append(os.pidfd_open(rank))
        watched.register(ours[-1], select.POLLIN)
    except OSError:  # it has ended, or this kernel is older than 5.3
        pause = 1000  # milliseconds between two looks
    member = 0
    while os.getppid() == rank:
        ready = [number for number, _ in watched.poll(pause)]
        if orders.fileno() not in ready:
            continue
        try:  # the rank may end at any word
            order = orders.recv()
            member = _end(member, begun)
            if isinstance(order, Begin):
                member = _begin(order, reduction.recv_handle(orders), ours)
            else:  # it waits until the member has ended
                orders.send(None)
        except (EOFError, OSError):
            break
    _end(member, begun)


def _begin(order: Begin, channel: int, ours: list[int]) -> int:
    """Fork the member of a new group: its process number."""
    parent = os.getpid()
    child = os.fork()
    if child:
        os.close(channel)
        return child
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            for file in ours:
                os.close(file)
            Member(Connection(channel), order).serve()
    finally:
        # Without MPI's end, which would wait for the others.
        os._exit(0)


def _end(member: int, begun: float) -> int:
    """Kill it, and remove what MPI leaves in /dev/shm then, if it is not older than we are."""
    if member:
        os.kill(member, signal.SIGKILL)
        os.waitpid(member, 0)
        sweep.sweep(begun)
    return 0


class Member:
    """One rank of one group."""

    def __init__(self, channel: Connection, order: Begin) -> None:
        self._channel, self._order = channel, order
        self._sending = threading.Lock()
        self._memory: dict[int, torch.Tensor] = {}

    def serve(self) -> None:
        """Meet the others, then carry out calls until the rank closes its end."""
        try:
            group = self._meet()
        except Exception as error:
            self._answer(READY, error)
            return
        self._answer(READY)
        while True:
            try:
                message = self._channel.recv()
            except (EOFError, OSError):
                return
            if isinstance(message, Buffer):
                file = reduction.recv_handle(self._channel)
                self._memory[message.number] = mapped(file, message.nbytes)
                os.close(file)
            else:
                self._call(group, message)

    def _meet(self) -> Any:
        import ddl

        order = self._order
        limit = timedelta(seconds=order.seconds)
        os.environ.update(RANK=str(order.rank), WORLD_SIZE=str(order.size))
        host, port, prefix = split_address(order.address)
        server = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)
        dist.init_process_group(
            "ddl",
            store=dist.PrefixStore(prefix, server),
            rank=order.rank,
            world_size=order.size,
            timeout=limit,
        )
        if ddl.num_hosts() > 1:
            watch(order.rank, order.size, order.seconds, self._lose)
        return dist.group.WORLD

    def _lose(self, rank: int) -> None:
        import ddl

        who = f"rank {rank} (host {ddl.host_name(rank)})"
        self._say(Lost(f"ddl: {who} has ended, or cannot be reached any more"))

    def _call(self, group: Any, call: Call) -> None:
        def ended(future: torch.futures.Future[Any]) -> None:
            try:
                future.value()
            except Exception as error:
                self._answer(call.number, error)
            else:
                self._answer(call.number)

        try:
            work = getattr(group, call.name)(*self._unpacked(list(call.arguments)))
        except Exception as error:
            self._answer(call.number, error, is_refused=isinstance(error, (ValueError, TypeError)))
        else:
            work.get_future().add_done_callback(ended)

    def _unpacked(self, argument: Any) -> Any:
        if isinstance(argument, Place):
            return tensor_at(self._memory[argument.buffer], argument)
        if isinstance(argument, list):
            return [self._unpacked(one) for one in argument]
        return _torchs(argument) if isinstance(argument, Options) else argument

    def _answer(
        self, number: int, error: Exception | None = None, is_refused: bool = False
    ) -> None:
        sentence = "" if error is None else str(error) or type(error).__name__
        self._say(Answer(number, sentence, is_refused))

    def _say(self, message: Answer | Lost) -> None:
        # When the rank has closed its end, `serve` sees it.
        with self._sending, contextlib.suppress(OSError):
            self._channel.send(message)


def _torchs(options: Options) -> Any:
    """The object of torch."""
    made = options.kind()
    for name, value in options.values.items():
        setattr(made, name, value)
    return made


def split_address(address: str) -> tuple[str, int, str]:
    """Host, port and prefix of "host:port/prefix"; an IPv6 host may be in brackets.

    Raises:
        ValueError: it is not of this form.
    """
    where, _, prefix = address.partition("/")
    host, _, port = where.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"the store's address is host:port/prefix, not '{address}'")
    return host.strip("[]"), int(port), prefix


if __name__ == "__main__":
    main()
