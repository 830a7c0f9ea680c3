"""`ddlce serve` as a process, asked by real clients: py-rattler, requests and raw sockets."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from ddlce.engine.index import index_channel, publish_index
from support.served import serving
from support.synthetic import make_package

TREE = Path(__file__).parents[2]
DDLCE = [sys.executable, "-m", "ddlce"]


def start(channel: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start the server on a free port; the process and the address it printed."""
    process = subprocess.Popen(
        [*DDLCE, "serve", "--port", "0", "--channel", str(channel), *arguments],
        env={**os.environ, "DDLCE_REPO": str(TREE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # pytest may itself run with SIGINT ignored, which a child would inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://\S+?(?=;)", line)
    assert found, (line, process.communicate())
    return process, found[0]


@dataclass
class Served:
    """A running server and the folder that it serves."""

    url: str
    folder: Path
    package: str

    def get(self, path: str, **headers: str) -> requests.Response:
        return requests.get(
            self.url + path,
            headers={"Accept-Encoding": "identity", **headers},
            timeout=30,
            stream=True,
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    top = tmp_path_factory.mktemp("serve")
    channel = top / "channel"
    base, noarch = top / "base", top / "noarch"
    (base / "share").mkdir(parents=True)
    (base / "share/data").write_bytes(os.urandom(300_000))
    (base / "info").mkdir()
    (base / "info/run_exports.json").write_text('{"weak": ["base >=1.10,<2.0a0"]}')
    (noarch / "etc").mkdir(parents=True)
    (noarch / "etc/top.conf").write_text("answer=42\n")
    for version in ("1.9", "1.10"):
        package = make_package(top / "built/linux-64", base, "base", version)
    make_package(
        top / "built/noarch",
        noarch,
        "top",
        depends=("base >=1.10", "__glibc >=2.17"),
        constrains=("other <2",),
        summary="<script>alert('x')</script> & more",
        homepage="javascript:alert('x')",
    )
    built = [(path.parent.name, path) for path in sorted((top / "built").glob("*/*.conda"))]
    publish_index(channel, built)
    (top / "secret").write_text("outside")
    (channel / "linux-64/.hidden").write_text("dot-file")
    (channel / "linux-64/leak").symlink_to(top / "secret")
    (channel / "pages").mkdir()
    (channel / "pages/style.css").write_text("not a package")
    (channel / "linux-64/inside").symlink_to("repodata.json")
    process, url = start(channel)
    yield Served(url, channel, f"/linux-64/{package.name}")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


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


RATTLER_CLIENT = """
import asyncio, os, sys
from rattler import Gateway, SourceConfig, VirtualPackage, install, solve

url, kind, cache, prefix = sys.argv[1:]
config = SourceConfig(
    zstd_enabled=kind == "zst", bz2_enabled=False, sharded_enabled=kind == "shards"
)

async def main():
    records = await solve(
        [url],
        ["top"],
        gateway=Gateway(cache_dir=f"{cache}/repodata", default_config=config),
        platforms=["linux-64", "noarch"],
        virtual_packages=VirtualPackage.detect(),
    )
    await install(records, target_prefix=prefix, cache_dir=f"{cache}/pkgs", show_progress=False)

asyncio.run(main())
sys.stdout.flush()
os._exit(0)  # at its end the interpreter crashes at times, in py-rattler 0.28's threads
"""


@pytest.mark.parametrize(
    ("kind", "index"),
    [
        ("plain", "repodata.json"),
        ("zst", "repodata.json.zst"),
        ("shards", "repodata_shards.msgpack.zst"),
    ],
)
def test_rattler_solves_and_installs(served: Served, tmp_path: Path, kind: str, index: str) -> None:
    """The real client, told to use each form of the index; the server notes what it asked for."""
    with serving(served.folder) as (url, asked):
        client = [sys.executable, "-c", RATTLER_CLIENT, url, kind]
        done = subprocess.run(
            [*client, str(tmp_path / "cache"), str(tmp_path / "prefix")],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "prefix/etc/top.conf").read_text() == "answer=42\n"
    data = (tmp_path / "prefix/share/data").read_bytes()
    assert data == (served.folder.parent / "base/share/data").read_bytes()
    assert {f"/{subdir}/{index}" for subdir in ("linux-64", "noarch")} <= set(asked)
    assert any("/shards/" in path for path in asked) == (kind == "shards")


def test_pages(served: Served) -> None:
    index = served.get("/").text
    assert "&lt;script&gt;" in index
    assert "<script" not in index
    assert 'href="/packages/base">base</a></td>\n<td class="key">1.10</td>' in index
    assert "/noarch/repodata.json" in index
    assert "/linux-ppc64le/repodata.json" not in index  # declared, but not built
    top = served.get("/packages/top").text
    assert "javascript:" not in top
    assert '<a href="/packages/base">base</a> &gt;=1.10' in top
    assert "<code>__glibc &gt;=2.17</code>" in top  # not in the channel, so no link
    assert "<code>other &lt;2</code>" in top
    base = served.get("/packages/base")
    assert f"conda install -c {served.url} --override-channels base=1.10" in base.text
    assert f'<a href="{served.package}">' in base.text
    assert base.text.index("base-1.10-") < base.text.index("base-1.9-")
    assert "&gt;=1.10,&lt;2.0a0" in base.text
    assert '<a href="/packages/top">top</a>' in base.text
    assert "default-src 'none'" in base.headers["Content-Security-Policy"]
    assert "http" not in re.sub(r"https?://(127\.0\.0\.1|example\.org)\S*", "", base.text)


def test_a_broken_package_does_not_take_the_page_away(tmp_path: Path, served: Served) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "x").write_text("x")
    package = make_package(tmp_path / "channel/noarch", files, "broken")
    index_channel(tmp_path / "channel")
    package.write_bytes(package.read_bytes()[:400])
    process, url = start(tmp_path / "channel")
    try:
        answer = requests.get(f"{url}/packages/broken", timeout=30)
        assert answer.status_code == 200
        assert "This package file cannot be read." in answer.text
    finally:
        process.terminate()
        process.wait(30)
    assert process.returncode == 0


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [*DDLCE, "serve", *arguments],
        env={**os.environ, "DDLCE_REPO": str(TREE), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_port_in_use(served: Served) -> None:
    port = served.url.rpartition(":")[2]
    assert run("--port", port, "--channel", str(served.folder)) == (
        3,
        f"error: port {port} on 127.0.0.1 is in use by another program\n"
        "hint:  choose another with --port, or --port 0 for any free one\n",
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours(served: Served, host: str) -> None:
    assert run("--host", host, "--port", "0", "--channel", str(served.folder)) == (
        2,
        f"error: --host {host}: not an address of this machine\n"
        "hint:  use 127.0.0.1, or the address of one of its interfaces\n",
    )


def test_a_folder_that_is_no_channel(tmp_path: Path) -> None:
    assert run("--channel", str(tmp_path)) == (
        2,
        f"error: no channel at {tmp_path}: it has no noarch/repodata.json\n"
        "hint:  build and index it with 'ddlce build' and 'ddlce index', or name another: "
        "--channel\n",
    )
