"""The HTTP server itself: waitress, on one address, until it is interrupted."""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from waitress.channel import HTTPChannel
from waitress.server import create_server

from ddlce.errors import InputError, MachineError
from ddlce.serve.application import ChannelApp

#: A thread is taken only while an answer is made.
THREADS = 8
#: Seconds after which a connection is closed on which nothing is asked for.
IDLE_TIMEOUT_S = 20
#: Seconds that a client may take for one request, from its first byte to its last.
REQUEST_TIMEOUT_S = 20.0
#: A client that takes less than `LEAST_BYTES` of an answer in `ANSWER_TIMEOUT_S` is cut off.
ANSWER_TIMEOUT_S, LEAST_BYTES = 60.0, 64 << 10
#: Files that this process has open beside its connections and the files that it sends on them.
OWN_FILES = 64
MOST_CONNECTIONS = 2048
#: Bytes of a request. There is nothing that a body could be for.
LONGEST_HEAD, LONGEST_BODY = 16 << 10, 64 << 10


class Connection(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection that does not stay open for a client that drips.

    waitress's own timeout counts from the last byte that went either way.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.asked_since = self.taken_since = time.monotonic()
        self.taken = 0
        super().__init__(*arguments, **options)

    def received(self, data: bytes) -> bool:
        """Bytes of a request have come."""
        before = self.request
        done = bool(super().received(data))
        if self.request is not before or before is None:
            self.asked_since = time.monotonic()
        elif time.monotonic() - self.asked_since > REQUEST_TIMEOUT_S:
            self.will_close = True
        return done

    def send(self, data: bytes, do_close: bool = True) -> int:
        """Send a part of an answer; returns how many bytes were taken."""
        taken = int(super().send(data, do_close=do_close))
        self.taken += taken
        return taken

    def writable(self) -> bool:
        """Whether there is something to send; asked of every connection each second."""
        now = time.monotonic()
        if not self.total_outbufs_len:
            self.taken_since, self.taken = now, 0
        elif now - self.taken_since > ANSWER_TIMEOUT_S:
            if self.taken < LEAST_BYTES:
                self.handle_close()  # it may never be ready to be written to again
                return False
            self.taken_since, self.taken = now, 0
        return bool(super().writable())


def most_connections(files: int) -> int:
    """How many connections are open at once, where a process may have so many files open."""
    return min(MOST_CONNECTIONS, max(100, (files - OWN_FILES) // 2))


def listen(app: Callable[..., Any], host: str, port: int) -> Any:
    """Listen on one address; the server that will answer when it is run.

    A client may open a connection for each package at once (rattler does, for the shards of an
    index), so half as many are taken as this process may have files open: each may be sent one. At
    waitress's own limit of 100 it stops answering until a connection that is already open closes.

    Args:
        host: the address, as a number or a name.
        port: the TCP port; 0 takes a free one.

    Raises:
        OSError: the address cannot be listened on.
    """
    server = create_server(
        app,
        host=host,
        port=port,
        threads=THREADS,
        ident="ddlce",
        connection_limit=most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        max_request_header_size=LONGEST_HEAD,
        max_request_body_size=LONGEST_BODY,
        asyncore_use_poll=True,  # select() knows files below 1024 only
        channel_timeout=IDLE_TIMEOUT_S,
        cleanup_interval=IDLE_TIMEOUT_S // 2,
    )
    server.channel_class = Connection
    return server


def serve(app: ChannelApp, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve `app` until SIGINT or SIGTERM; `ready` is given the address once it answers.

    Args:
        host: the address to listen on, as a name or a number.
        port: the TCP port; 0 takes a free one.

    Raises:
        InputError: the host is no address of this machine.
        MachineError: the port is taken, or not allowed.
    """
    try:
        # One address only: waitress would give each of a name's addresses its own free port.
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
        server = listen(app, str(address), port)
    except OSError as error:
        raise _explain(error, host, port) from error
    # More requests than threads is no news: they wait a moment.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, _interrupt)
    ready(f"http://{f'[{host}]' if ':' in host else host}:{server.effective_port}")
    try:
        server.run()  # returns on KeyboardInterrupt, when the answers under way are sent
    finally:
        server.close()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _explain(error: OSError, host: str, port: int) -> InputError | MachineError:
    if error.errno == errno.EADDRINUSE:
        return MachineError(
            f"port {port} on {host} is in use by another program",
            "choose another with --port, or --port 0 for any free one",
        )
    if error.errno == errno.EACCES:
        return MachineError(
            f"this user may not listen on port {port}", "choose a port above 1023 with --port"
        )
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return InputError(
            f"--host {host}: not an address of this machine",
            "use 127.0.0.1, or the address of one of its interfaces",
        )
    return MachineError(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}")
