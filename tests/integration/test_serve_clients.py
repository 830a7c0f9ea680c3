"""`ddlce serve` for its users: py-rattler, the pages in a browser, the command's messages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from ddlce.engine.index import index_channel
from support.run import run as run_program
from support.served import serving
from support.serveprocess import DDLCE, TREE, Served, served_channel, start
from support.synthetic import make_package


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_channel(tmp_path_factory.mktemp("serve")) as found:
        yield found


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
        done = run_program(
            [*client, str(tmp_path / "cache"), str(tmp_path / "prefix")], timeout=120
        )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "prefix/etc/top.conf").read_text() == "answer=42\n"
    data = (tmp_path / "prefix/share/data").read_bytes()
    assert data == (served.folder.parent / "base/share/data").read_bytes()
    assert {f"/{subdir}/{index}" for subdir in ("linux-64", "noarch")} <= set(asked)
    assert any("/shards/" in path for path in asked) == (kind == "shards")


def test_the_pages_show_and_escape_the_channel(served: Served) -> None:
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
    done = run_program(
        [*DDLCE, "serve", *arguments],
        env={**os.environ, "DDLCE_REPO": str(TREE), "COLUMNS": "200"},
        timeout=60,
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
