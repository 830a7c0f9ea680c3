"""A server on the loopback, for the time of a test."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Silent(http.server.BaseHTTPRequestHandler):
    """Says nothing of the requests that it gets."""

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def listening(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server whose requests go to `handler`; yields its URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
