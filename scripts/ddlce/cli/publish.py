"""`ddlce publish`: releases as plain files for a web server."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddlce.cli.common import ChannelFolderOption, JsonOption, app, out, print_json
from ddlce.cli.keys import SIGNED_DAYS, DaysOption, MetadataOption, SignOption, load_signers
from ddlce.ownership import check_place
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings, load_settings

if TYPE_CHECKING:
    from ddlce.publish.listing import Listing
    from ddlce.publish.site import Offer


ToOption = Annotated[
    str | None,
    typer.Option("--to", help="Bring it to this place, too; needs --by.", metavar="ADDRESS"),
]
ByOption = Annotated[
    str | None, typer.Option("--by", help="Your command for that, with {from} and {to} in it.")
]


@app.command(epilog="Example: ddlce publish /srv/www/ddl ddl-ce ddl-ce-full --sign release")
def publish(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The site's folder.")],
    envs: Annotated[
        list[str] | None, typer.Argument(metavar="[ENV]...", help="Environments; else ddl-ce.")
    ] = None,
    platforms: Annotated[
        list[str] | None, typer.Option("--platform", help="A platform; linux-64 by default.")
    ] = None,
    keep: Annotated[
        int, typer.Option(min=0, help="Releases of each environment that stay; 0: all.")
    ] = 0,
    withdraw: Annotated[
        list[str] | None,
        typer.Option("--withdraw", help="A release that goes: ddl-ce-2026.11-linux-64."),
    ] = None,
    to: ToOption = None,
    by: ByOption = None,
    sign: SignOption = None,
    days: DaysOption = SIGNED_DAYS,
    metadata: MetadataOption = None,
    channel: ChannelFolderOption = None,
    without_bundle: Annotated[
        bool, typer.Option("--no-bundle", help="Leave out the one file of each release.")
    ] = False,
    without_sbom: Annotated[
        bool, typer.Option("--no-sbom", help="Leave the SBOMs out, as of another tree's release.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Lay releases out as plain files for any web server: channel, locks, bundles, SBOMs.

    Users install from there with no source tree: ddlce env create ENV --from URL. With --sign,
    all of it is signed, by the root in the channel's metadata.
    """
    from ddlce.cli.env._common import say_waiting
    from ddlce.publish.site import Signing
    from ddlce.publish.site import publish as write
    from ddlce.publish.upload import Upload, upload
    from ddlce.trust.names import METADATA

    settings, where = load_settings(), Upload.of(to, by)
    packages = channel or settings.channel
    check_place(packages, "the channel", site=True)
    signing = Signing(load_signers(sign), days, metadata or packages / METADATA)
    names = envs or (() if withdraw else ("ddl-ce",))
    chosen = [*product(names, platforms or (BUILD_PLATFORM,))]
    listing = write(
        *(settings, folder.absolute()),
        _offers(settings, chosen, packages, sboms=not without_sbom, bundles=not without_bundle),
        *(packages, signing),
        keep=keep,
        withdrawn=withdraw or (),
        on_wait=say_waiting,
    )
    if where:
        upload(folder.absolute(), where, say_waiting)
    if json:
        print_json(listing.model_dump())
    else:
        say(listing, folder, signed=bool(signing.signers), to=where.to if where else "")


def _offers(
    settings: Settings,
    chosen: Sequence[tuple[str, str]],
    channel: Path,
    *,
    sboms: bool,
    bundles: bool,
) -> list[Offer]:
    """What is offered: environments with their platforms."""
    from ddlce.cli.sbom import make
    from ddlce.lock import lock_path
    from ddlce.model.envlock import EnvLock
    from ddlce.publish.site import Offer

    locks = [EnvLock.load(lock_path(settings, env, platform)) for env, platform in chosen]
    texts = [make(settings, lock, channel) if sboms else {} for lock in locks]
    return [Offer(lock, text, bundle=bundles) for lock, text in zip(locks, texts, strict=True)]


def say(listing: Listing, folder: Path, *, signed: bool, to: str = "") -> None:
    """Say what the site has now."""
    for release in listing.releases:
        out.print(f"{folder / release.folder}", markup=False)
    out.print(
        f"{folder}: {len(listing.releases)} releases, {'signed' if signed else 'not signed'}; "
        "serve it as plain files, links followed",
        markup=False,
    )
    if to:
        out.print(f"{to}: brought up to date", markup=False)
