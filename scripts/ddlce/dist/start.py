"""What `ddlce.pyz` runs first: it unpacks itself once, since compiled modules must be files.

It is read from inside the archive, so it imports the standard library and what needs no more.
The unpacked folder is a virtual environment of the Python that runs it: so the processes that
`ddlce` starts find its modules, and nobody else's.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ddlce.errors import DdlceError, InputError
from ddlce.files import explain_os_errors, make_folder, on_disk_at_end
from ddlce.locks import locked
from ddlce.ownership import check_place
from ddlce.userpath import absolute

#: In the archive: what is unpacked, and what it says of itself.
SITE, ABOUT = "site-packages", "application.json"


@dataclass(frozen=True)
class Application:
    """What the archive says of itself.

    Attributes:
        python: the version of Python that its compiled modules are for, "3.11".
        digest: of all that is in it; hex.
    """

    python: str
    digest: str


def main(archive: str) -> NoReturn:
    """Unpack the archive unless it was, and run `ddlce` from there."""
    try:
        python = unpacked(Path(archive))
    except DdlceError as error:  # rich, which shows errors elsewhere, is not to be had yet
        print(f"error: {error.message}\nhint:  {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
    os.execv(python, [str(python), "-I", "-m", "ddlce", *sys.argv[1:]])


def unpacked(archive: Path) -> Path:
    """The Python of the folder that the archive is unpacked to.

    Raises:
        InputError: the archive is for another Python.
        MachineError: the cache cannot be written, or others could change it.
    """
    with zipfile.ZipFile(archive) as packed:
        about = Application(**json.loads(packed.read(ABOUT)))
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        if about.python != here:
            raise InputError(
                f"{archive} is for Python {about.python}, and this is {here}",
                f"run it so: python{about.python} {archive}; or install the wheel with pip",
            )
        base = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
        cache = absolute(os.environ.get("DDLCE_CACHE") or "~/.cache/ddl-ce", "DDLCE_CACHE")
        check_place(cache, "the cache")
        name = hashlib.sha256(f"{about.digest} {base}".encode()).hexdigest()[:16]
        folder = cache / "app" / name
        python = folder / "bin" / "python"
        if not python.exists():
            with explain_os_errors(folder):
                make_folder(folder.parent)
                with locked(folder.parent / ".lock"):
                    if not python.exists():
                        _unpack(packed, folder, base, here)
    return python


def _unpack(packed: zipfile.ZipFile, folder: Path, base: Path, version: str) -> None:
    """Make the folder, which has its name when it is whole."""
    partial = folder.with_name(f".{folder.name}.new")
    for left in (partial, folder):
        if left.exists():
            shutil.rmtree(left)
    with on_disk_at_end(folder.parent):
        library = partial / "lib" / f"python{version}"
        make_folder(library)
        names = [name for name in packed.namelist() if name.startswith(f"{SITE}/")]
        packed.extractall(library, names)
        for path in library.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        make_folder(partial / "bin")
        (partial / "bin" / "python").symlink_to(base)
        (partial / "pyvenv.cfg").write_text(
            f"home = {base.parent}\ninclude-system-site-packages = false\n"
        )
    partial.rename(folder)
