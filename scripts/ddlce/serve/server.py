"""The HTTP server itself: waitress, on one address, until it is interrupted."""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

from waitress.server import create_server

from ddlce.errors import InputError, MachineError
from ddlce.serve.application import ChannelApp

#: A thread is taken only while an answer is made.
THREADS = 8
#: Seconds after which a connection is closed on which nothing is asked for.
IDLE = 20
#: Files that this process has open beside its connections: the answers under way, logs.
OWN_FILES = 64


def listen(app: Callable[..., Any], host: str, port: int) -> Any:
    """Listen on one address; the server that will answer when it is run.

    A client may open a connection for each package at once (rattler does, for the shards of an
    index), so as many are taken as this process may have files open. At waitress's own limit of 100
    it stops answering until a connection that is already open closes.

    Args:
        app: a WSGI application.
        host: the address, as a number or a name.
        port: the TCP port; 0 takes a free one.

    Raises:
        OSError: the address cannot be listened on.
    """
    return create_server(
        app,
        host=host,
        port=port,
        threads=THREADS,
        ident="ddlce",
        connection_limit=max(100, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OWN_FILES),
        asyncore_use_poll=True,  # select() knows files below 1024 only
        channel_timeout=IDLE,
        cleanup_interval=IDLE // 2,
    )


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
