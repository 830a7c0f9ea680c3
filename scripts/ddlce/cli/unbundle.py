"""What a bundle's header runs: `python -m ddlce.cli.unbundle FILE --channel-at N ...`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from shlex import quote

from rich.markup import escape

from ddlce.bundle.install import Installed, Stage, install_bundle, smoke_quickly
from ddlce.cli.app import end_process, run_designed
from ddlce.cli.common import out
from ddlce.cli.env._common import progress_bar, say_waiting
from ddlce.cli.signed import require_signed
from ddlce.settings import load_settings
from ddlce.trust.names import lock_name
from ddlce.trust.policy import load_policy


def main() -> None:
    """Install, say what is there now, and try it."""
    parser = argparse.ArgumentParser(prog="bundle")
    parser.add_argument("file", type=Path)
    parser.add_argument("--channel-at", type=int, required=True)
    parser.add_argument("--stage", type=Path, required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--older", action="store_true")
    parser.add_argument("--no-default", action="store_true")
    parser.add_argument("--no-smoke", action="store_true")
    said = parser.parse_args()
    stage = Stage(said.file, said.channel_at, said.stage)
    if load_policy():
        require_signed(load_settings(said.root), {lock_name(stage.lock): stage.lock.digest})
    with progress_bar("installing") as progress:
        done = install_bundle(
            stage,
            said.root,
            older=said.older,
            candidate=said.no_default,
            progress=progress,
            on_wait=say_waiting,
        )
    say(done)
    if not said.no_smoke:
        smoke_quickly(stage.settings(said.root), done.release.prefix)


def say(done: Installed) -> None:
    """Say what is there now, and how it is used."""
    state = "is there already" if done.release.existed else "is installed"
    out.print(f"{escape(str(done.release.prefix))} {state}: {done.release.packages} packages")
    for system, folder in done.module.trees.items():
        out.print(
            f"{system}:  module use {quote(str(folder))} && module load {done.module.name}",
            markup=False,
        )
    out.print(f"channel:  {done.channel.as_uri()}", markup=False)


if __name__ == "__main__":
    os.umask(0o022)
    end_process(lambda: run_designed(main))
