"""Keys: a private one is a file of its owner, the public one a file beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ddlce.errors import InputError, MachineError
from ddlce.files import explain_os_errors, write_atomic

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, Key

PUBLIC = ".pub"


def new_key(path: Path) -> str:
    """Make an ed25519 key: the private one in `path`, the public one in `path.pub`.

    Returns:
        The key's number.

    Raises:
        InputError: one of the files is there already.
        MachineError: they cannot be written.
    """
    from securesystemslib.signer import CryptoSigner

    public = path.with_name(path.name + PUBLIC)
    for file in (path, public):
        if os.path.lexists(file):
            raise InputError(f"{file} is there already", "name another file: keys are not replaced")
    signer = CryptoSigner.generate_ed25519()
    with explain_os_errors(path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(signer.private_bytes)
            stream.flush()
            os.fsync(handle)
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
