"""`ddlce keys`: make keys, say whose signatures count, sign releases, check files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddlce.cli.common import ChannelFolderOption, app, out
from ddlce.errors import InputError, MachineError
from ddlce.settings import load_settings

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

keys = typer.Typer(
    help="Make keys, say whose signatures count, sign releases, check files.", no_args_is_help=True
)
app.add_typer(keys, name="keys")

MetadataOption = Annotated[
    Path | None,
    typer.Option("--metadata", help="The channel's metadata, instead of channel/metadata."),
]
SignOption = Annotated[
    list[Path] | None, typer.Option("--sign", help="The file of a private key to sign with.")
]

DaysOption = Annotated[int, typer.Option(min=1, help="Until the signatures expire.")]

#: How long the signatures on releases and files are good, where the signer does not say it.
SIGNED_DAYS = 90


@keys.command()
def new(path: Annotated[Path, typer.Argument(metavar="FILE", help="Where the key goes.")]) -> None:
    """Make an ed25519 key: the private one in FILE, the public one in FILE.pub.

    Example: ddlce keys new /media/stick/root-anna
    """
    from ddlce.trust.keys import PUBLIC, new_key

    _need_cryptography()
    number = new_key(path)
    out.print(f"{path}: keep it where nobody else can read it", markup=False)
    out.print(f"{path}{PUBLIC}: key {number[:16]}…, for everybody", markup=False)


@keys.command()
def root(
    root_key: Annotated[
        list[Path], typer.Option("--root-key", help="A public key that may change the root.")
    ],
    release_key: Annotated[
        list[Path], typer.Option("--release-key", help="A public key that may sign releases.")
    ],
    threshold: Annotated[
        int, typer.Option("--threshold", help="How many root keys must sign.")
    ] = 1,
    release_threshold: Annotated[
        int, typer.Option("--release-threshold", help="How many release keys must sign.")
    ] = 1,
    sign: SignOption = None,
    days: Annotated[int, typer.Option(min=1, help="Until it expires.")] = 365,
    metadata: MetadataOption = None,
) -> None:
    """Make the next root: it says whose signatures count from now on.

    Name all keys each time: a key that is left out is revoked. Where the signatures of other root
    keys are missing still, a draft is written, which their owners sign with `ddlce keys cosign`.

    Example: ddlce keys root --root-key anna.pub --root-key ben.pub --threshold 2
    --release-key release.pub --sign anna
    """
    from ddlce.trust.keys import load_public
    from ddlce.trust.repository import Roles, make_root

    folder, signers = _folder(metadata), load_signers(sign)
    roles = Roles(
        [load_public(path) for path in root_key],
        threshold,
        [load_public(path) for path in release_key],
        release_threshold,
    )
    _say_root(folder, make_root(folder, roles, signers, days))


@keys.command()
def cosign(sign: SignOption = None, metadata: MetadataOption = None) -> None:
    """Say what the draft of a root is, and add a signature to it; without --sign, only say it.

    Example: ddlce keys cosign --sign ben
    """
    from ddlce.trust.repository import cosign as add

    def show(lines: list[str]) -> None:
        out.print("\n".join(lines), markup=False)

    folder, signers = _folder(metadata), load_signers(sign)
    _say_root(folder, add(folder, signers, show))


@keys.command("sign")
def sign_release(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Other files, as bundles.")
    ] = None,
    sign: SignOption = None,
    days: DaysOption = SIGNED_DAYS,
    withdraw: Annotated[
        list[str] | None, typer.Option("--withdraw", help="A name that is signed no longer.")
    ] = None,
    channel: ChannelFolderOption = None,
    metadata: MetadataOption = None,
) -> None:
    """Sign the locks, sources.lock, the channel's index and SBOMs, and files such as bundles.

    Names that were signed before stay so, unless they are withdrawn. Sign again before the
    signatures expire.

    Example: ddlce keys sign dist/ddl-ce-2026.11-linux-64.run --sign release
    """
    from ddlce.trust.names import METADATA, signed_files
    from ddlce.trust.repository import sign_files

    settings = load_settings()
    place = channel or settings.channel
    folder, signers = metadata or place / METADATA, load_signers(sign)
    wanted = signed_files(settings, place)
    for path in files or ():
        _check_named(path, wanted)
        wanted[path.name] = path
    for name in sign_files(folder, wanted, signers, days, withdraw or ()):
        out.print(name, markup=False)


@keys.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Such as a bundle.")],
) -> None:
    """Check files that were carried here, before they are used.

    The settings file says whose signatures are wanted. A file is known by its name.

    Example: ddlce keys check ddl-ce-2026.11-linux-64.run && sh ddl-ce-2026.11-linux-64.run
    """
    from ddlce.cli.signed import require_signed
    from ddlce.files import sha256_file
    from ddlce.trust.policy import OWN_SETTINGS, SITE_SETTINGS, wanted_signatures

    if wanted_signatures() is None:
        raise InputError(
            "no settings file says whose signatures are wanted",
            f"write {SITE_SETTINGS} or {OWN_SETTINGS}; see the site guide",
        )
    named: dict[str, Path] = {}
    for path in files:
        _check_named(path, named)
        named[path.name] = path
    require_signed(load_settings(), {name: sha256_file(path) for name, path in named.items()})
    for path in files:
        out.print(f"{path} is signed", markup=False)


def _check_named(path: Path, known: Mapping[str, Path]) -> None:
    """Refuse what is no file, and a second one of a name: a file is known by its name."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file", "name a file")
    if path.name in known:
        raise InputError(
            f"{path} has the name of {known[path.name]}", "name one of the two, then the other"
        )


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401  it is asked for, not used
    except ModuleNotFoundError as error:
        raise MachineError(
            "this ddlce cannot sign, as it has no cryptography",
            "use the one of the source tree: .venv/bin/ddlce",
        ) from error


def _folder(metadata: Path | None) -> Path:
    from ddlce.trust.names import METADATA

    return metadata or load_settings().channel / METADATA


def load_signers(paths: list[Path] | None) -> list[CryptoSigner]:
    """The private keys in files that options named; none where there are none.

    Raises:
        InputError: one is no key.
        MachineError: others may read one, or this `ddlce` cannot sign.
    """
    if not paths:
        return []
    from ddlce.trust.keys import load_signer

    _need_cryptography()
    return [load_signer(path) for path in paths]


def _say_root(folder: Path, missing: int) -> None:
    from ddlce.trust.names import DRAFT
    from ddlce.trust.repository import newest_root

    newest = newest_root(folder)
    if missing or newest is None:
        signatures = "signature is" if missing == 1 else "signatures are"
        out.print(f"{folder / DRAFT}: {missing} more {signatures} missing", markup=False)
        return
    file = folder / f"{newest.signed.version}.root.json"
    out.print(f"{file}: expires {newest.signed.expires:%Y-%m-%d}", markup=False)
