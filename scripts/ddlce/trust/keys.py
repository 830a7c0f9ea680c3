"""Keys: a private one is a file of its owner, the public one a file beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ddlce.errors import InputError, MachineError
from ddlce.files import write_atomic
from ddlce.locks import locked
from ddlce.ownership import refuse_changeable

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, Key

PUBLIC = ".pub"


def new_key(path: Path) -> str:
    """Make an ed25519 key: the private one in `path`, the public one in `path.pub`.

    Where a run before was killed between the two files, the public one is made of the private one.

    Returns:
        The key's number.

    Raises:
        InputError: the files, or the public one, are there already; or what is there is no key.
        MachineError: they cannot be written.
    """
    from securesystemslib.signer import CryptoSigner

    public = path.with_name(path.name + PUBLIC)
    with locked(path.with_name(f".{path.name}.lock"), passing=True):
        if os.path.lexists(public):
            raise InputError(
                f"{public} is there already", "name another file: keys are not replaced"
            )
        if os.path.lexists(path):
            signer = load_signer(path)
        else:
            signer = CryptoSigner.generate_ed25519()
            write_atomic(path, signer.private_bytes, 0o600)
        key = signer.public_key
        text = json.dumps({"keyid": key.keyid, **key.to_dict()}, indent=1, sort_keys=True)
        write_atomic(public, text + "\n")
    return str(key.keyid)


def load_signer(path: Path) -> CryptoSigner:
    """The private key in a file.

    Raises:
        InputError: there is none.
        MachineError: others may read it.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            data = stream.read(1 << 16)
    except OSError as error:
        raise InputError(f"{path}: no private key: {error.strerror}", "name its file") from error
    if mode & 0o077:
        raise MachineError(f"{path}: others may read this key", f"chmod 600 {path}")
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: no private key", "make one: ddlce keys new FILE") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path}: no ed25519 key", "make one: ddlce keys new FILE")
    return CryptoSigner(key)


def load_public(path: Path) -> Key:
    """The public key in a file.

    Raises:
        InputError: there is none.
    """
    from securesystemslib.signer import Key

    try:
        data = json.loads(path.read_bytes())
        return Key.from_dict(data.pop("keyid"), data)
    except OSError as error:
        raise InputError(f"{path}: no public key: {error.strerror}", "name its file") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: no public key", "name a file that `ddlce keys new` made"
        ) from error


def load_trusted(path: Path) -> Key:
    """The public key in a file by which something is believed.

    Raises:
        InputError: there is none.
        MachineError: others could change the file.
    """
    refuse_changeable(path, "the trusted key ")
    return load_public(path)
