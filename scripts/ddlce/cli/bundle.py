"""`ddlce bundle`: a release as one file that installs itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ddlce.cli.common import ChannelFolderOption, JsonOption, LockOption, app, out, print_json
from ddlce.cli.sbom import make
from ddlce.ownership import check_place
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings, load_settings

if TYPE_CHECKING:
    from ddlce.bundle.description import Bundle
    from ddlce.model.envlock import EnvLock


@app.command(epilog="Example: ddlce bundle ddl-ce --out dist && sh dist/ddl-ce-*.run --help")
def bundle(
    env: Annotated[str, typer.Argument(help="An environment that is locked.")] = "ddl-ce",
    lock: LockOption = None,
    platform: Annotated[
        str, typer.Option("--platform", help="The lock's platform.")
    ] = BUILD_PLATFORM,
    channel: ChannelFolderOption = None,
    folder: Annotated[Path, typer.Option("--out", help="Where the file goes.")] = Path("dist"),
    without: Annotated[
        bool,
        typer.Option("--no-sbom", help="Leave the SBOMs out, as of a release of another tree."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write a release as one file that needs only sh and tar to install it."""
    from ddlce.lock import lock_path
    from ddlce.model.envlock import EnvLock

    settings = load_settings()
    locked = EnvLock.load(lock or lock_path(settings, env, platform))
    done = write(settings, locked, channel or settings.channel, folder, sboms=not without)
    if json:
        print_json(dataclasses.asdict(done))
        return
    out.print(
        f"{escape(done.path)}: {done.packages} packages, {done.size / 1e6:.0f} MB "
        f"({done.size / done.packages_size:.3f} of the packages), sha256 {done.sha256}"
    )
    out.print(f"install it:  sh {escape(done.path)} --root DIR")


def write(
    settings: Settings, lock: EnvLock, channel: Path, folder: Path, *, sboms: bool = True
) -> Bundle:
    """Write a lock's bundle, with its SBOMs.

    Raises:
        DdlceError: as `write_bundle`, and as `make`.
    """
    from ddlce.bundle.write import write_bundle

    check_place(channel, "the channel", site=True)
    texts = make(settings, lock, channel) if sboms else {}
    return write_bundle(settings, lock, channel, folder.absolute(), texts)
