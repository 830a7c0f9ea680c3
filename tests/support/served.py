"""A channel served to real clients from a thread of the test, which notes what they ask for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddlce.model.channel import load_channel
from ddlce.serve.application import ChannelApp
from ddlce.serve.pages import Pages
from ddlce.serve.server import listen

TREE = Path(__file__).parents[2]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of a server of the channel `folder`, and the paths asked for so far."""
    asked: list[str] = []
    description = load_channel(TREE / "channel/channel.yaml")
    app = ChannelApp(folder, description, Pages(TREE / "channel/pages", description))

    def noting(environ: Any, start_response: Any) -> Any:
        asked.append(environ["PATH_INFO"])
        return app(environ, start_response)

    server = listen(noting, "127.0.0.1", 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}", asked
    finally:
        server.close()
