"""A release as a whole, the same for the same lock."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from ddlce.model.envlock import EnvLock

#: For the numbers of SBOMs: version 5 UUIDs of locks' digests.
SPACE = uuid.UUID("5f0f4b6e-6d6b-5d2b-9a0e-dd1ce0000001")


@dataclass(frozen=True)
class Release:
    """A release.

    Attributes:
        env, version, platform, digest: of the lock.
        time: of its newest package: an SBOM of the same lock has the same bytes.
    """

    env: str
    version: str
    platform: str
    digest: str
    time: datetime

    @classmethod
    def of(cls, lock: EnvLock) -> Release:
        """The release of a lock."""
        newest = max(package.timestamp or 0 for package in lock.packages)
        time = datetime.fromtimestamp(newest // 1000, UTC)
        return cls(lock.env, lock.release, lock.platform, lock.digest, time)

    @property
    def name(self) -> str:
        """`ddl-ce-2026.11-linux-64`."""
        return f"{self.env}-{self.version}-{self.platform}"

    @property
    def number(self) -> uuid.UUID:
        """The number of its SBOMs."""
        return uuid.uuid5(SPACE, self.digest)
