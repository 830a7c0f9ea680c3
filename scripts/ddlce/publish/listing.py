"""`releases.json`: the releases that a site has, newest first."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ddlce.engine.versions import version_key
from ddlce.errors import InputError
from ddlce.model.envlock import EnvLock, Hex64
from ddlce.safepath import Word
from ddlce.trust.names import LOCK, release_name

#: The folder of releases, and the listing, which is signed by this name.
FOLDER, LISTING = "releases", "releases.json"

#: Of each release, beside its lock: the template by which clients of conda find the channel.
CONDARC = "condarc.j2"

FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Listed(_Strict):
    """One release.

    Attributes:
        env, release, platform, digest: of its lock.
        files: name → sha256 of each file in its folder.
    """

    env: Word
    release: Word
    platform: Word
    digest: Hex64
    files: dict[FileName, Hex64]

    @property
    def name(self) -> str:
        """`ddl-ce-2026.11-linux-64`."""
        return f"{self.env}-{self.release}-{self.platform}"

    @property
    def folder(self) -> str:
        """Where its files are, from the site's top."""
        return f"{FOLDER}/{self._full_name}"

    @property
    def lock(self) -> str:
        """The name of its lock's file, by which it is signed, too."""
        return f"{self._full_name}{LOCK}"

    @property
    def _full_name(self) -> str:
        return release_name(self.env, self.release, self.digest, self.platform)


class Listing(_Strict):
    """All of them; one for each environment, version and platform."""

    version: Literal[1]
    releases: list[Listed]

    def to_json(self) -> bytes:
        """The file's text."""
        return self.model_dump_json(indent=1).encode() + b"\n"

    def choose(self, env: str, platform: str, release: str | None, where: str) -> Listed:
        """The newest release of an environment, or the one that is asked for.

        Raises:
            InputError: there is none; says what there is.
        """
        for listed in self.releases:
            if (listed.env, listed.platform) == (env, platform) and release in (
                None,
                listed.release,
            ):
                return listed
        asked = f"{env} {release}" if release else env
        there = ", ".join(sorted(listed.name for listed in self.releases)) or "nothing"
        raise InputError(f"{where} has no {asked} for {platform}", f"it has: {there}")

    def with_releases(self, new: list[Listed], keep: int, withdrawn: list[str]) -> Listing:
        """The listing after some were published.

        Args:
            new: they take the place of those with the same name.
            keep: how many of each environment and platform stay; 0: all.
            withdrawn: names of those that go.

        Raises:
            InputError: one that is withdrawn is not there.
        """
        found = {listed.name: listed for listed in (*self.releases, *new)}
        for name in withdrawn:
            if found.pop(name, None) is None:
                raise InputError(
                    f"--withdraw {name}: there is no such release",
                    f"there are: {', '.join(sorted(found)) or 'none'}",
                )
        ordered = sorted(found.values(), key=lambda one: (one.env, one.platform))
        ordered.sort(key=lambda one: version_key(one.release), reverse=True)
        kept, counts = [], dict[tuple[str, str], int]()
        for one in ordered:
            key = (one.env, one.platform)
            counts[key] = counts.get(key, 0) + 1
            if not keep or counts[key] <= keep:
                kept.append(one)
        return Listing(version=1, releases=kept)


def listed(lock: EnvLock, files: dict[str, str]) -> Listed:
    """A lock's release."""
    return Listed(
        env=lock.env,
        release=lock.release,
        platform=lock.platform,
        digest=lock.digest,
        files=dict(sorted(files.items())),
    )
