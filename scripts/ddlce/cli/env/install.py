"""`ddlce env install`: add packages to a clone."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, RootOption, out, print_json
from ddlce.cli.env._common import OfflineOption, progress_bar, say_waiting
from ddlce.cli.lock import ChannelOption
from ddlce.cli.signed import require_signed_packages
from ddlce.settings import load_settings


def install(
    name: Annotated[str, typer.Argument(help="A clone's name or path.")],
    specs: Annotated[list[str], typer.Argument(help="Package specs, e.g. 'numpy >=2'.")],
    root: RootOption = None,
    channel: ChannelOption = None,
    offline: OfflineOption = False,
    json: JsonOption = False,
) -> None:
    """Add packages from the channel to a clone."""
    from ddlce.env.install import install_specs
    from ddlce.env.layout import find_env
    from ddlce.lock import channel_address

    settings = load_settings(root)
    prefix = find_env(settings, name)
    with progress_bar("installing") as progress:
        changed = install_specs(
            settings,
            prefix,
            specs,
            channel=channel_address(channel) if channel else None,
            check=lambda packages, channels: require_signed_packages(settings, packages, channels),
            offline=offline,
            progress=progress,
            on_wait=say_waiting,
        )
    if json:
        print_json(dataclasses.asdict(changed))
        return
    for package in changed.removed:
        out.print(f"- {package}", markup=False)
    for package in changed.added:
        out.print(f"+ {package}", markup=False)
    if not changed.added and not changed.removed:
        out.print("nothing to do: everything is there already")
