"""Files by their upstream addresses."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import requests

from ddlce.sources.client import Cancelled, DownloadError, OnBytes
from ddlce.weberror import innermost

CHUNK = 1 << 16
TIMEOUT_S = 60


def http_download(url: str, target: Path, report: OnBytes, stop: Event) -> None:
    """Fetch a URL into `target`, going on where an earlier try ended.

    Raises:
        DownloadError: no connection, an HTTP error, or fewer bytes than announced.
        Cancelled: `stop` was set; what arrived is kept for the next try.
    """
    have = target.stat().st_size if target.exists() else 0
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                target.unlink()
                raise DownloadError(f"{url}: the server has fewer bytes than are here already")
            if not response.ok:
                # fetch.py makes the next try.
                again = response.status_code >= 500 or response.status_code == 429
                raise DownloadError(f"{url}: HTTP {response.status_code}", again=again)
            if response.status_code != requests.codes.partial_content:
                have = 0
            expected = have + int(response.headers.get("Content-Length") or 0)
            with target.open("ab" if have else "wb") as stream:
                for chunk in response.iter_content(CHUNK):
                    have += stream.write(chunk)
                    report(have)
                    if stop.is_set():
                        raise Cancelled
            if have < expected:
                raise DownloadError(f"{url}: the connection ended after {have} of {expected} bytes")
    except requests.RequestException as error:
        bad = isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema)
        raise DownloadError(f"{url}: {_reason(error)}", again=not bad) from error


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT_S} s"
    return innermost(error)
