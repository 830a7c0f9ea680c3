"""Brings metadata from a folder or a web server, within limits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

import requests
from tuf.api.exceptions import DownloadError, DownloadHTTPError, SlowRetrievalError
from tuf.ngclient import FetcherInterface
from urllib3.exceptions import HTTPError

from ddlce.errors import SourceError
from ddlce.trust.sentences import sentence

CHUNK = 1 << 14

#: Seconds for an answer to begin, and for all of it.
TIMEOUT_S, ALL_S = 30, 120


class Fetcher(FetcherInterface):
    """Fetches files, and knows which was the last."""

    def __init__(self) -> None:
        self.last = ""

    def _fetch(self, url: str) -> Iterator[bytes]:
        parts = urlsplit(url)
        self.last = unquote(parts.path.rpartition("/")[2])
        if parts.scheme == "file":
            try:
                stream = Path(unquote(parts.path)).open("rb")  # noqa: SIM115  _blocks closes it
            except FileNotFoundError as error:
                raise DownloadHTTPError(f"no {self.last}", 404) from error
            return _blocks(stream)
        response = requests.get(
            url, headers={"Accept-Encoding": "identity"}, stream=True, timeout=TIMEOUT_S
        )
        if response.status_code != requests.codes.ok:
            response.close()
            raise DownloadHTTPError(f"HTTP {response.status_code}", response.status_code)
        return _parts(response)


def fetch_bytes(url: str, limit: int, hint: str) -> bytes:
    """A small file, as it is now.

    Args:
        url: `file://` or http(s).
        limit: bytes that it has at most.
        hint: what to do where it cannot be had.

    Raises:
        SourceError: it cannot be had, or is longer.
    """
    fetcher = Fetcher()
    try:
        return bytes(fetcher.download_bytes(url, limit))
    except DownloadError as error:
        raise SourceError(f"{url}: {sentence(error, fetcher.last)}", hint) from error


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    with stream:
        while block := stream.read(CHUNK):
            yield block


def _parts(response: requests.Response) -> Iterator[bytes]:
    end = time.monotonic() + ALL_S
    try:
        with response:
            # What has come, not whole chunks: the clock is looked at where a server trickles, too.
            while part := response.raw.read1(CHUNK):
                if time.monotonic() > end:
                    raise SlowRetrievalError("too slow")
                yield part
    except (requests.RequestException, HTTPError) as error:
        raise DownloadError(str(error)) from error
