"""`ddlce serve` as a process, asked by real clients: requests and raw sockets."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from support.serveprocess import Served, served_channel


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_channel(tmp_path_factory.mktemp("serve")) as found:
        yield found


def test_files_are_served_byte_for_byte_with_their_types(served: Served) -> None:
    types = {
        "/linux-64/repodata.json": "application/json",
        "/linux-64/repodata.json.zst": "application/zstd",
        "/linux-64/repodata_shards.msgpack.zst": "application/zstd",
        "/linux-64/current_repodata.json": "application/json",
        "/noarch/run_exports.json.zst": "application/zstd",
        "/channeldata.json": "application/json",
        served.package: "application/octet-stream",
    }
    for path, expected in types.items():
        answer = served.get(path)
        wanted = (served.folder / path[1:]).read_bytes()
        assert answer.status_code == 200
        assert answer.raw.read() == wanted
        assert answer.headers["Content-Type"] == expected
        assert answer.headers["Content-Length"] == str(len(wanted))
        assert answer.headers["Accept-Ranges"] == "bytes"
        assert "Content-Encoding" not in answer.headers


def test_a_client_that_accepts_zstd_still_gets_the_file_as_it_lies(served: Served) -> None:
    answer = served.get("/linux-64/repodata.json.zst", **{"Accept-Encoding": "gzip, zstd"})
    assert "Content-Encoding" not in answer.headers
    assert answer.raw.read() == (served.folder / "linux-64/repodata.json.zst").read_bytes()


def test_head_has_the_headers_of_get_and_no_body(served: Served) -> None:
    got, head = served.get(served.package), requests.head(served.url + served.package, timeout=30)
    for name in ("Content-Length", "Content-Type", "ETag", "Last-Modified", "Accept-Ranges"):
        assert head.headers[name] == got.headers[name]
    assert head.content == b""


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=100-199", 100, 199),
        ("bytes=300000-", 300_000, None),
        ("bytes=-70", -70, None),
        ("bytes=100-999999999", 100, None),
        ("bytes=-999999999", 0, None),
    ],
)
def test_a_single_range(served: Served, wanted: str, first: int, last: int | None) -> None:
    whole = (served.folder / served.package[1:]).read_bytes()
    first = first if first >= 0 else len(whole) + first
    last = len(whole) - 1 if last is None else last
    answer = served.get(served.package, Range=wanted)
    assert answer.status_code == 206
    assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(whole)}"
    assert answer.headers["Content-Length"] == str(last - first + 1)
    assert answer.raw.read() == whole[first : last + 1]


def test_a_range_after_the_end_is_refused_with_the_length(served: Served) -> None:
    size = (served.folder / served.package[1:]).stat().st_size
    answer = served.get(served.package, Range=f"bytes={size}-")
    assert answer.status_code == 416
    assert answer.headers["Content-Range"] == f"bytes */{size}"


@pytest.mark.parametrize("wanted", ["bytes=0-1,5-9", "lines=0-1", "bytes=9-1", "nonsense"])
def test_ranges_that_may_be_ignored_give_the_whole_file(served: Served, wanted: str) -> None:
    answer = served.get(served.package, Range=wanted)
    assert answer.status_code == 200
    assert len(answer.raw.read()) == (served.folder / served.package[1:]).stat().st_size


def test_conditional_requests(served: Served) -> None:
    path = "/linux-64/repodata.json"
    first = served.get(path)
    etag, date = first.headers["ETag"], first.headers["Last-Modified"]
    same = served.get(path, **{"If-None-Match": etag})
    assert (same.status_code, same.raw.read()) == (304, b"")
    assert same.headers["ETag"] == etag
    assert served.get(path, **{"If-Modified-Since": date}).status_code == 304
    assert served.get(path, **{"If-None-Match": '"other"'}).status_code == 200
    assert served.get(path, **{"If-Range": etag, "Range": "bytes=0-3"}).status_code == 206
    assert served.get(path, **{"If-Range": '"other"', "Range": "bytes=0-3"}).status_code == 200


def test_a_replaced_index_has_another_etag(served: Served) -> None:
    path = served.folder / "noarch/extra.json"
    path.write_text("{}")
    stat = path.stat()
    old = served.get("/noarch/extra.json").headers["ETag"]
    fresh = path.with_name("fresh")
    fresh.write_text("[]")
    os.utime(fresh, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    fresh.replace(path)
    answer = served.get("/noarch/extra.json", **{"If-None-Match": old})
    assert (answer.status_code, answer.raw.read()) == (200, b"[]")


def raw_status(served: Served, target: str) -> int:
    """The status of a request line sent as it is: no client tidies the path up."""
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(
    "target",
    [
        "/linux-64/../../secret",
        "/linux-64/%2e%2e/%2e%2e/secret",
        "/linux-64/..%2f..%2fsecret",
        "/linux-64/%252e%252e/secret",
        "/linux-64//etc/passwd",
        "/../secret",
        "/linux-64/.hidden",
        "/linux-64/leak",
        "/linux-64/",
        "/linux-64/shards",
        "/osx-64/repodata.json",
        "/pages/style.css",
        "/secret",
        "/.tmp/x",
        "/linux-64/repodata.json%00",
        "/linux-64/" + "x" * 5000,
        "/packages/nothing",
    ],
)
def test_nothing_else_is_served(served: Served, target: str) -> None:
    assert raw_status(served, target) == 404


def test_metadata_is_served_but_no_draft(served: Served) -> None:
    folder = served.folder / "metadata"
    folder.mkdir()
    (folder / "timestamp.json").write_text("{}\n")
    (folder / "root.draft.json").write_text("{}\n")
    assert served.get("/metadata/timestamp.json").text == "{}\n"
    assert raw_status(served, "/metadata/root.draft.json") == 404
    assert raw_status(served, "/metadata/../secret") == 404
    shutil.rmtree(folder)


def test_bills_of_materials_are_on_the_page(served: Served) -> None:
    assert "Bills of materials" not in served.get("/").text
    folder = served.folder / "sbom"
    folder.mkdir()
    (folder / "toys-1.cdx.json").write_text("{}\n")
    (folder / ".toys-1.cdx.json.0.new").write_text("{")
    answer = served.get("/sbom/toys-1.cdx.json")
    assert (answer.text, answer.headers["Content-Type"]) == ("{}\n", "application/json")
    page = served.get("/").text
    assert '<a href="/sbom/toys-1.cdx.json"><code>toys-1.cdx.json</code></a>.' in page
    assert page.count("toys-1") == 2
    assert raw_status(served, "/sbom/.toys-1.cdx.json.0.new") == 404
    assert raw_status(served, "/sbom/../secret") == 404
    shutil.rmtree(folder)


def test_a_link_that_stays_inside_is_served(served: Served) -> None:
    assert served.get("/linux-64/inside").status_code == 200


def test_only_reading_is_allowed(served: Served) -> None:
    answer = requests.post(served.url + "/linux-64/repodata.json", data=b"x", timeout=30)
    assert answer.status_code == 405
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "HEAD"}


def test_many_requests_on_one_connection(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    request = f"GET /noarch/repodata.json HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        stream = connection.makefile("rb")
        for _ in range(3):
            connection.sendall(request)
            assert stream.readline().startswith(b"HTTP/1.1 200")
            length = 0
            while (line := stream.readline().strip()) != b"":
                if line.lower().startswith(b"content-length"):
                    length = int(line.split(b":")[1])
            assert len(stream.read(length)) == length > 0


def test_more_connections_than_packages(served: Served) -> None:
    """A client opens one for each shard, and keeps them."""
    host, port = served.url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as opened:
        sockets = [
            opened.enter_context(socket.create_connection((host, int(port)), timeout=10))
            for _ in range(400)
        ]
        for one in sockets:
            one.sendall(b"HEAD /noarch/repodata.json HTTP/1.1\r\nHost: test\r\n\r\n")
        assert {one.recv(12) for one in sockets} == {b"HTTP/1.1 200"}


def test_many_clients_at_once(served: Served) -> None:
    wanted = hashlib.sha256((served.folder / served.package[1:]).read_bytes()).hexdigest()

    def fetch(_number: int) -> str:
        return hashlib.sha256(served.get(served.package).raw.read()).hexdigest()

    with ThreadPoolExecutor(32) as pool:
        assert set(pool.map(fetch, range(96))) == {wanted}
