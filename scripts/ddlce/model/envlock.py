"""`envs/locks/<env>.<platform>.lock`: the exact packages of a release on one platform.

Nothing in a lock names a machine: packages are named relative to their channel, so that the
same lock installs from a folder, a server or a mirror, and gives the same digest everywhere.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ddlce import yamltext
from ddlce.errors import InputError
from ddlce.model.document import load_model
from ddlce.model.manifest import OWN_CHANNEL, Version
from ddlce.safepath import InnerPath, Word

HEADER = (
    "# The exact packages of one environment on one platform. Written by `ddlce lock`;\n"
    "# do not edit by hand: change the manifest and lock again.\n"
)

Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, Field(pattern=r"^[^/\s]+\.(conda|tar\.bz2)$")]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class LockedPackage(_Strict):
    """One package: its record in the channel's index, under conda's own field names.

    Attributes:
        name, version, build, build_number: as in the index.
        channel: `ddl-ce` or the URL of another channel.
        subdir: the channel's folder that holds it.
        file: the file's name in that folder.
        sha256, md5, size: of the file; the sha256 decides.
        depends, constrains, noarch, license, timestamp, python_site_packages_path: as in the
            index, so that an environment can be made with the index gone.
    """

    name: Word
    version: Word
    build: Word
    build_number: int = 0
    channel: str = OWN_CHANNEL
    subdir: Word
    file: FileName
    sha256: Hex64
    md5: str | None = None
    size: int = Field(ge=0)
    depends: list[str] = []
    constrains: list[str] = []
    noarch: Literal["python", "generic"] | None = None
    license: str | None = None
    timestamp: int | None = None
    python_site_packages_path: InnerPath | None = None

    @classmethod
    def of(cls, record: dict[str, Any], where: str) -> LockedPackage:
        """A package of a channel's index or of an environment.

        Args:
            where: what it was read from, for the message.

        Raises:
            InputError: a field has no value that a package could have.
        """
        try:
            return cls.model_validate(record)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise InputError(
                f"{where}: package {record.get('name')}: {field}: {first['msg']}",
                "do not use it before you know why",
            ) from error

    @property
    def stem(self) -> str:
        """`name-version-build`: the package's folder in a package cache."""
        return f"{self.name}-{self.version}-{self.build}"

    def url(self, channels: dict[str, str]) -> str:
        """Where the file is, given the address of each channel name."""
        base = channels.get(self.channel, self.channel)
        return f"{base.rstrip('/')}/{self.subdir}/{self.file}"


class EnvLock(_Strict):
    """The exact packages of an environment on one platform.

    Attributes:
        version: of this file format.
        env, release: from the manifest.
        platform: conda subdir, e.g. `linux-64`.
        manifest: the manifest's digest; another one means that the lock is out of date.
        channels: in order of priority.
        specs: what the manifest asks for.
        virtual_packages: what the solver took the machine to have, e.g. `__glibc: "2.36"`.
        variables: environment variables that activation sets.
        packages: sorted by name.
    """

    version: Literal[1] = 1
    env: Word
    release: Word
    platform: Word
    manifest: Hex64
    channels: list[str]
    specs: list[str]
    virtual_packages: dict[str, Version] = {}
    variables: dict[str, str] = {}
    packages: Annotated[list[LockedPackage], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        names = [package.name for package in self.packages]
        if names != sorted(set(names)):
            raise ValueError("packages must be sorted by name, each once")
        return self

    @property
    def digest(self) -> str:
        """Hex sha256 of the lock's text: what an installed environment is named after."""
        return hashlib.sha256(self.to_yaml().encode()).hexdigest()

    def to_yaml(self) -> str:
        """The lock file's text; the same text for the same content."""
        data = self.model_dump(mode="json", exclude_defaults=True)
        data = {"version": self.version, **data}
        return HEADER + yamltext.dump(data, width=200)

    def package(self, name: str) -> LockedPackage | None:
        """The package of this name, or None."""
        return next((p for p in self.packages if p.name == name), None)

    @classmethod
    def load(cls, path: Path) -> EnvLock:
        """Read a lock.

        Raises:
            InputError: the file is missing or damaged; names the file and the field.
        """
        return load_model(
            path,
            cls.model_validate,
            lambda data, error: InputError(f"{path}: not a lock: {_first(data, error)}", _AGAIN),
            absent=InputError(f"there is no lock {path}", "make it with: ddlce lock"),
            hint=_AGAIN,
            kind="a lock",
        )


_AGAIN = "restore the file with git, or make it again with: ddlce lock"


def _first(data: Any, error: ValidationError) -> str:
    """The message about the first error: package, field and reason."""
    problem = error.errors()[0]
    where = [str(part) for part in problem["loc"]]
    if where[:1] == ["packages"] and len(where) > 1:
        entry = data["packages"][int(where[1])]
        name = entry.get("name") if isinstance(entry, dict) else None
        where = [f"package {name or where[1]}", *where[2:]]
    return ": ".join([*where, problem["msg"]])
