"""A channel's metadata with test keys, for whoever keeps it and for whoever would forge it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ddlce.trust.keys import load_public, load_signer, new_key
from ddlce.trust.repository import Roles, make_root, sign_files
from support.loopback import Silent, listening

ROOT_KEYS = ("anna", "ben", "cleo")


class Keeper:
    """Keeps a channel's metadata in a folder: two of three root keys sign, and one release key.

    Args:
        folder: of keys, metadata and the files that are signed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metadata = folder / "metadata"
        self.files = folder / "files"
        for name in (*ROOT_KEYS, "release", "second", "thief"):
            (folder / "keys").mkdir(parents=True, exist_ok=True)
            new_key(folder / "keys" / name)

    def copy(self, folder: Path) -> Keeper:
        """The same in another folder, with the same keys."""
        shutil.copytree(self.folder, folder)
        made = object.__new__(type(self))
        made.folder, made.metadata, made.files = folder, folder / "metadata", folder / "files"
        return made

    def key(self, name: str) -> Path:
        return self.folder / "keys" / name

    def root(
        self,
        *signers: str,
        root: tuple[str, ...] = ROOT_KEYS,
        threshold: int = 2,
        release: tuple[str, ...] = ("release",),
        release_threshold: int = 1,
        days: int = 365,
    ) -> int:
        """Make the next root; returns how many signatures are missing."""
        roles = Roles(
            [load_public(self.key(f"{name}.pub")) for name in root],
            threshold,
            [load_public(self.key(f"{name}.pub")) for name in release],
            release_threshold,
        )
        return make_root(self.metadata, roles, [load_signer(self.key(n)) for n in signers], days)

    def sign(self, *signers: str, days: int = 30, withdrawn: tuple[str, ...] = ()) -> None:
        """Sign all files."""
        files = {path.name: path for path in self.files.iterdir()}
        keys = [load_signer(self.key(name)) for name in signers or ("release",)]
        sign_files(self.metadata, files, keys, days, withdrawn)

    def named(self, pattern: str) -> Path:
        """The newest metadata file of a pattern: `*.targets.json`."""
        found = self.metadata.glob(pattern)
        return max(found, key=lambda path: int("0" + path.name.split(".")[0].strip("tiemsap")))

    def edit(self, pattern: str, change: Callable[[Any], object]) -> None:
        """Change a metadata file without its signature."""
        path = self.named(pattern)
        data = json.loads(path.read_bytes())
        change(data)
        path.write_text(json.dumps(data))

    def settings_file(self, root: Path | None = None) -> Path:
        """A settings file that trusts the first root of this keeper."""
        path = self.folder / "settings.yaml"
        trusted = self.folder / "trusted.json"
        shutil.copyfile(root or self.metadata / "1.root.json", trusted)
        wanted = {"root": str(trusted), "metadata": str(self.metadata)}
        path.write_text(yaml.safe_dump({"signatures": wanted}))
        return path

    def digests(self) -> Mapping[str, str]:
        """Name → sha256 of the files as they are."""
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in self.files.iterdir()}


@contextlib.contextmanager
def answering(answers: Mapping[str, str]) -> Iterator[str]:
    """A loopback server that gives bad answers to paths, and 404 to others; yields its URL.

    Args:
        answers: path → an HTTP status, or "cut", "drip", "endless".
    """

    class Handler(Silent):
        def do_GET(self) -> None:
            answer = answers.get(self.path, "404")
            self.send_response(int(answer) if answer.isdigit() else 200)
            if answer == "cut":
                self.send_header("Content-Length", "1000")
            self.end_headers()
            for _ in range({"drip": 40, "endless": 1 << 20}.get(answer, 1)):
                try:
                    self.wfile.write(b"{" * (100 if answer == "cut" else 1 << 10))
                    self.wfile.flush()
                except OSError:
                    return
                if answer == "drip":
                    time.sleep(0.05)
                if answer == "cut":
                    self.connection.close()
                    return

    with listening(Handler) as url:
        yield url
