"""A server of random files, their lock entries, and `ddlce` run on a tree that locks them."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from http.server import ThreadingHTTPServer

from ddlce.model.source import Source, SourcesLock
from ddlce.settings import Settings
from support.loopback import Silent
from support.run import run

MB = 1_000_000


class Server(ThreadingHTTPServer):
    """Serves bytes by path, with ranges; can be slow, cut connections or refuse."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.failures: dict[str, int] = {}
        self.cuts: dict[str, int] = {}
        self.delay = 0.0

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(Silent):
    server: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        wanted = self.headers.get("Range")
        self.server.requests.append((name, wanted))
        if self.server.failures.get(name, 0) > 0:
            self.server.failures[name] -= 1
            self.send_error(503)
            return
        if name not in self.server.content:
            self.send_error(404)
            return
        data = self.server.content[name]
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        cut = self.server.cuts.pop(name, len(data))
        for position in range(start, min(cut, len(data)), 65536):
            self.wfile.write(data[position : min(position + 65536, cut)])
            time.sleep(self.server.delay)


def publish(server: Server, name: str, size: int = MB, seed: int = 1) -> Source:
    """Random bytes on the server, and their lock entry."""
    data = random.Random(f"{name}{seed}").randbytes(size)
    server.content[name] = data
    return Source(
        client="url",
        package=name.split(".")[0],
        file=name,
        size=size,
        sha256=hashlib.sha256(data).hexdigest(),
        url=server.url(name),
    )


def ddlce(
    settings: Settings, *arguments: str, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `ddlce ARGUMENTS` on the tree, under the program `prefix` if any."""
    return run(
        [*prefix, sys.executable, "-m", "ddlce", *arguments], env=environment(settings), timeout=300
    )


def environment(settings: Settings) -> dict[str, str]:
    """The environment in which `ddlce` works on the tree."""
    return {**os.environ, "DDLCE_REPO": str(settings.repo), "DDLCE_CACHE": str(settings.cache)}


def lock(settings: Settings, *sources: Source) -> None:
    """Write sources.lock."""
    SourcesLock(sources=list(sources)).dump(settings.sources_lock)
