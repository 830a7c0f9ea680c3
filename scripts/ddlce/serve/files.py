"""Channel files over HTTP: which file a URL means, and one response for it.

The file is opened first and measured by its descriptor, so that an index replaced by rename
while it is being sent is still sent whole: a client sees the old index or the new one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from werkzeug.exceptions import NotFound
from werkzeug.http import parse_range_header
from werkzeug.security import safe_join
from werkzeug.wrappers import Response
from werkzeug.wsgi import wrap_file

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

CHUNK = 1 << 18

#: By the end of the name. What is compressed stays so: never a Content-Encoding, because
#: clients check the sha256 of the bytes as they lie in the channel.
CONTENT_TYPES = {
    ".json": "application/json",
    ".zst": "application/zstd",
    ".bz2": "application/x-bzip2",
}


def content_type(name: str) -> str:
    """The media type of a channel file, by its name."""
    return CONTENT_TYPES.get(Path(name).suffix, "application/octet-stream")


def find_file(channel: Path, subdir: str, path: str) -> Path:
    """The file that `/subdir/path` means.

    Raises:
        NotFound: there is none; or the path has a dot-file or `..` in it, or a symbolic link
            leads out of the channel. All look the same to the client.
    """
    joined = safe_join(str(channel), subdir, path)
    if joined is None or any(part.startswith(".") for part in path.split("/")):
        raise NotFound
    file = Path(joined)
    try:
        if not file.is_file() or not file.resolve().is_relative_to(channel.resolve()):
            raise NotFound
    except OSError as error:  # a name that is too long for the file system
        raise NotFound from error
    return file


def send_file(path: Path, environ: WSGIEnvironment) -> Response:
    """A response with the file's bytes: 200, 206 for a single range, 304 when not modified.

    Raises:
        NotFound: the file is gone.
        RequestedRangeNotSatisfiable: the range begins after the end of the file.
    """
    try:
        stream = path.open("rb")
    except FileNotFoundError as error:  # removed by a new index since it was found
        raise NotFound from error
    stat = os.fstat(stream.fileno())
    response = Response(
        wrap_file(environ, stream, CHUNK), mimetype=content_type(path.name), direct_passthrough=True
    )
    response.content_length = stat.st_size
    response.last_modified = stat.st_mtime  # type: ignore[assignment]  # a setter that takes both
    response.set_etag(f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}")
    response.cache_control.no_cache = True
    try:
        response.make_conditional(
            _with_plain_range(environ, stat.st_size),
            accept_ranges=True,
            complete_length=stat.st_size,
        )
    except BaseException:
        stream.close()
        raise
    if response.status_code == 206 and "wsgi.file_wrapper" in environ:
        # The part from here, as long as Content-Length: the server needs no thread to send it.
        stream.seek(response.content_range.start or 0)
        response.response = wrap_file(environ, stream, CHUNK)
    return response


def _with_plain_range(environ: WSGIEnvironment, size: int) -> WSGIEnvironment:
    """`environ` with a Range header that `make_conditional` reads as RFC 9110 means it.

    A server must ignore a range with another method or an unknown unit, and may ignore several
    ranges. It gives the whole file for a suffix that is longer than the file: clients ask for one
    when they read the end of a small package.
    """
    if "HTTP_RANGE" not in environ:
        return environ
    wanted = parse_range_header(environ["HTTP_RANGE"])
    plain = dict(environ)
    if (
        environ["REQUEST_METHOD"] != "GET"
        or wanted is None
        or wanted.units != "bytes"
        or len(wanted.ranges) != 1
    ):
        del plain["HTTP_RANGE"]
    elif -wanted.ranges[0][0] > size:
        plain["HTTP_RANGE"] = "bytes=0-"
    return plain
