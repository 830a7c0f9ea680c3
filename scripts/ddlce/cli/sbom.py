"""`ddlce sbom`: what a release is made of, as CycloneDX and SPDX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ddlce.cli.common import ChannelFolderOption, JsonOption, LockOption, app, err, out, print_json
from ddlce.errors import MachineError
from ddlce.model.envlock import EnvLock
from ddlce.ownership import check_place
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings, load_settings


@app.command(epilog="Example: ddlce sbom ddl-ce --out dist")
def sbom(
    env: Annotated[str, typer.Argument(help="An environment that is locked.")] = "ddl-ce",
    lock: LockOption = None,
    platform: Annotated[
        str, typer.Option("--platform", help="The lock's platform.")
    ] = BUILD_PLATFORM,
    channel: ChannelFolderOption = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Where the files go; the channel's sbom/ by default."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a release's bill of materials: NAME.cdx.json (CycloneDX) and NAME.spdx.json (SPDX).

    Both name the packages, their sources and patches, and what others have made inside them.
    """
    from ddlce.lock import lock_path
    from ddlce.model.channel import SBOMS

    settings = load_settings()
    locked = EnvLock.load(lock or lock_path(settings, env, platform))
    packages = channel or settings.channel
    check_place(packages, "the channel", site=True)
    made = make(settings, locked, packages)

    from ddlce.sbom.write import write_sboms

    written = write_sboms(made, (folder or packages / SBOMS).absolute())
    if json:
        print_json({"files": [str(path) for path in written]})
    for path in () if json else written:
        out.print(str(path), markup=False)


def make(settings: Settings, lock: EnvLock, channel: Path) -> dict[str, str]:
    """The SBOMs of a lock's release, by file name; says that it takes a while.

    Raises:
        MachineError: the libraries that write them are not there, as in an environment.
    """
    try:
        from ddlce.sbom.write import make_sboms
    except ModuleNotFoundError as error:
        raise MachineError(
            f"this ddlce cannot write SBOMs, as it has no {error.name}",
            "use the one of the source tree: .venv/bin/ddlce",
        ) from error
    with err.status("reading packages for the SBOMs"):
        return make_sboms(settings, lock, channel)
