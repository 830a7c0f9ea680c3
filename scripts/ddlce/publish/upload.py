"""Brings a site to another place by the site's own command, in an order that readers can bear."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddlce.errors import InputError, MachineError, WorkError
from ddlce.files import explain_os_errors, link_or_copy, not_yet_on_disk
from ddlce.publish.listing import LISTING
from ddlce.trust.names import index_files
from ddlce.waiting import OnWait, waiting_lock

#: What stands in a command for the folder to send, and for the place.
FROM, TO = "{from}", "{to}"

#: What readers ask first, beside the listing: it says which metadata are the newest.
NEWEST = "timestamp.json"


@dataclass(frozen=True)
class Upload:
    """Where a site is brought to.

    Attributes:
        to: the place, in the command's own notation.
        words: of the command, with `{from}` and `{to}` in them.
    """

    to: str
    words: tuple[str, ...]

    @classmethod
    def of(cls, to: str | None, command: str | None) -> Upload | None:
        """What two options say; None where neither is given.

        Raises:
            InputError: one of them is missing, or the command cannot be one.
        """
        if to is None and command is None:
            return None
        if not to or not command:
            raise InputError("--to and --by go together", "--to ADDRESS --by 'COMMAND {from} {to}'")
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise InputError(f"--by: {command!r}: {error}", "quote it as for a shell") from error
        for part in (FROM, TO):
            if not any(part in word for word in words):
                raise InputError(
                    f"--by: {command!r} has no {part}", "write {from} and {to} where they belong"
                )
        return cls(to, words)


def upload(folder: Path, where: Upload, on_wait: OnWait | None = None) -> None:
    """Send a site's files: first what others name, then the channel's index, then the listing.

    Nothing is removed there: readers of the old state may still want it.

    Raises:
        MachineError: there is no such program, or the files cannot be gathered.
        WorkError: the command failed. What readers ask first was to come last, so they find the
            old state, unless it was that which failed.
    """
    with waiting_lock(folder / ".lock", on_wait):
        names = [*_names(folder)]
        index = {str(Path("channel", name)) for name in index_files(folder / "channel")}
        last = {name for name in names if Path(name).name in (LISTING, NEWEST)}
        first = [name for name in names if name not in index and name not in last]
        for group in (first, sorted(index - last), sorted(last)):
            _send(folder, group, where)


def _names(folder: Path) -> Iterator[str]:
    """The files that a web server of the folder gives, which follows links."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from (f"{path.name}/{name}" for name in _names(path))
        else:
            yield path.name


def _send(folder: Path, names: list[str], where: Upload) -> None:
    with (
        explain_os_errors(folder),
        tempfile.TemporaryDirectory(dir=folder, prefix=".upload-") as made,
    ):
        with not_yet_on_disk():
            for name in names:
                link_or_copy(folder / name, Path(made) / name)
        words = [word.replace(FROM, made).replace(TO, where.to) for word in where.words]
        try:
            ran = subprocess.run(words, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise MachineError(
                f"{words[0]}: no such program on this machine", "name another one: --by"
            ) from None
    if ran.returncode:
        lines = (ran.stderr.strip() or ran.stdout.strip()).splitlines() or ["it said nothing"]
        raise WorkError(
            f"{shlex.join(where.words)} ended with {ran.returncode}: {lines[-1]}",
            f"{where.to} has the new state in part; mend it, and give the same command again",
        )
