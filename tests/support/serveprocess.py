"""`ddlce serve` as a process, on a channel with three packages and with files to keep back."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import requests

from ddlce.engine.index import publish_index
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


@contextlib.contextmanager
def served_channel(top: Path) -> Iterator[Served]:
    """A channel made in the empty folder `top`, and its server until the end of the block."""
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
