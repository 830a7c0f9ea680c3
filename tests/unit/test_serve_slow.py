"""Clients of the server that take their time: they hold nobody else up, and not for ever."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from ddlce.serve import server
from support.served import serving

#: More than waitress keeps of an answer before it lets the thread that makes it wait.
SIZE = 40 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    channel = tmp_path_factory.mktemp("slow")
    (channel / "noarch").mkdir()
    (channel / "noarch/repodata.json").write_text("{}")
    (channel / "noarch/big.conda").write_bytes(os.urandom(1 << 20) * (SIZE >> 20))
    return channel


@pytest.fixture
def url(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 1.5)
    monkeypatch.setattr(server, "ANSWER_TIMEOUT_S", 1.5)
    with serving(folder) as (address, _asked):
        yield address


def connect(url: str) -> socket.socket:
    host = urlsplit(url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(10)
    connection.connect((host.hostname, host.port))
    return connection


@pytest.mark.parametrize("wanted", ["", "Range: bytes=5-\r\n", "Range: bytes=-39000000\r\n"])
def test_who_reads_slowly_holds_up_nobody(
    url: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ANSWER_TIMEOUT_S", 60)
    ask = f"GET /noarch/big.conda HTTP/1.1\r\nHost: x\r\n{wanted}\r\n".encode()
    with contextlib.ExitStack() as opened:
        for _ in range(3 * server.THREADS):
            slow = opened.enter_context(connect(url))
            slow.sendall(ask)
            assert slow.recv(9) == b"HTTP/1.1 "
        start = time.monotonic()
        assert requests.get(f"{url}/noarch/repodata.json", timeout=10).text == "{}"
        assert time.monotonic() - start < 5


def test_ranges_are_the_files(url: str, folder: Path) -> None:
    data = (folder / "noarch/big.conda").read_bytes()
    for text, part in (("5-104", data[5:105]), ("-7", data[-7:]), (f"{SIZE - 9}-", data[-9:])):
        answer = requests.get(
            f"{url}/noarch/big.conda", headers={"Range": f"bytes={text}"}, timeout=30
        )
        assert (answer.status_code, answer.content) == (206, part)
        assert answer.headers["Content-Length"] == str(len(part))


def ends_within(connection: socket.socket, seconds: float, drip: bytes = b"") -> bool:
    """Whether the server ends the connection, on which one byte is sent every 0.2 s."""
    connection.setblocking(False)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.2)
        try:
            if drip:
                connection.sendall(drip)
            elif not connection.recv(16):  # as slow a reader
                return True
        except BlockingIOError:
            pass
        except OSError:
            return True
    return False


@pytest.mark.parametrize("begin", [b"G", b"GET / HTTP/1.1\r\nX: ", b""])
def test_who_asks_slowly_is_cut_off(url: str, begin: bytes) -> None:
    with connect(url) as connection:
        connection.sendall(begin or b"GET /noarch/repodata.json HTTP/1.1\r\nHost: x\r\n\r\nG")
        assert ends_within(connection, 8, drip=b"x")


def test_who_reads_too_slowly_is_cut_off(url: str) -> None:
    with connect(url) as connection:
        connection.sendall(b"GET /noarch/big.conda HTTP/1.1\r\nHost: x\r\n\r\n")
        # What is on the way must be read to see the end.
        time.sleep(6)
        connection.settimeout(10)
        got = 0
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(1 << 20):
                got += len(data)
        assert got < SIZE


def test_who_reads_at_a_modems_speed_is_served(url: str) -> None:
    with connect(url) as connection:
        connection.sendall(b"GET /noarch/big.conda HTTP/1.1\r\nHost: x\r\n\r\n")
        got, end = 0, time.monotonic() + 5
        while time.monotonic() < end:
            got += len(connection.recv(100_000))
            time.sleep(0.05)
        assert got > 200_000
        assert connection.recv(1)


def test_nobody_sends_a_body(url: str) -> None:
    answer = requests.get(f"{url}/noarch/repodata.json", data=b"x" * 100_000, timeout=10)
    assert answer.status_code == 413


def test_connections_are_bounded() -> None:
    assert server.most_connections(1024) == 480
    assert server.most_connections(1 << 20) == server.MOST_CONNECTIONS
