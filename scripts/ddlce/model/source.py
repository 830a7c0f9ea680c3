"""`sources.lock`: every file that the distribution is made from, and what a wheel says of itself.

A source is named by the client that fetches it and the package it belongs to, never by a
registry's address. The client (pip, apt) finds the file the way the machine is set up to. The
sha256 decides whether it is the right one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ddlce import yamltext
from ddlce.errors import InputError
from ddlce.files import write_atomic
from ddlce.model.document import load_model

#: The clients that can fetch a source.
Client = Literal["pypi-wheel", "pypi-sdist", "debian-source", "debian-binary", "url"]

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

#: The scheme of a recipe's `source.url` for each client that has no public address of its own.
SCHEMES: dict[Client, str] = {
    "pypi-wheel": "pypi",
    "pypi-sdist": "pypi",
    "debian-source": "debian-source",
    "debian-binary": "debian-binary",
}

#: Debian's package of glibc, of which sysroots of other platforms are made.
GLIBC_PACKAGE = "libc6"

#: Suites of Debian that are no release, and have no updates beside them.
ROLLING = ("sid", "unstable", "experimental")

#: How a request for a package begins, `pypi:numpy`, where it is not the client's own name.
PREFIXES: dict[Client, str] = {"pypi-wheel": "pypi"}

HEADER = (
    "# Every file that the distribution is made from. Written by `ddlce sources add|update`;\n"
    "# do not edit by hand: a wrong sha256 here is a wrong byte in the release.\n"
)


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class WheelMetadata(_Strict):
    """What a recipe needs to know of a wheel, read once, when the wheel is locked.

    Attributes:
        name: the distribution's name, as its metadata spells it.
        version: its version, a local part (`+cpu`) included.
        tags: the wheel's compatibility tags, e.g. `cp311-cp311-manylinux_2_28_x86_64`.
        pure: no compiled file inside; such a wheel makes a `noarch: python` package.
        requires_python: the `Requires-Python` specifier, or "".
        requires_dist: the requirements (PEP 508), those of extras left out.
        scripts: console scripts, name to `module:function`.
        license: SPDX expression, normalised; "" where the metadata says nothing usable.
        license_files: licence texts, as paths inside the wheel.
        summary: one line.
        homepage: the project's page, or "".
        imports: top-level import names.
        needed: shared libraries (sonames) that its files need and that it does not bundle.
        glibc: the newest glibc symbol version that its files need, e.g. `2.28`, or "".
        sonames: the shared libraries that it brings for other packages, as NVIDIA's do.
    """

    name: str
    version: str
    tags: list[str]
    pure: bool
    requires_python: str = ""
    requires_dist: list[str] = []
    scripts: dict[str, str] = {}
    license: str = ""
    license_files: list[str] = []
    summary: str = ""
    homepage: str = ""
    imports: list[str] = []
    needed: list[str] = []
    glibc: Annotated[str, Field(pattern=r"^(\d+(\.\d+)*)?$")] = ""
    sonames: list[str] = []


class DebMetadata(_Strict):
    """What a recipe needs to know of a repackaged Debian package, read when it is locked.

    Attributes:
        summary: one line.
        homepage: the project's page, or "".
        sonames: the shared libraries that it brings.
        needed: shared libraries (sonames) that its files need and that it does not bring.
        glibc: the newest glibc symbol version that its files need, e.g. `2.38`, or "".
        python: of a Python package, what a wheel would say.
    """

    summary: str = ""
    homepage: str = ""
    sonames: list[str] = []
    needed: list[str] = []
    glibc: Annotated[str, Field(pattern=r"^(\d+(\.\d+)*)?$")] = ""
    python: WheelMetadata | None = None


class Source(_Strict):
    """One file, the client that fetches it, and the proof that it is the right one.

    Attributes:
        client: who fetches it.
        package: the client's name of the package; for `url` the project's name.
        version: the exact version in the client's own notation; "" where `url` has none.
        file: the file's name.
        size: bytes.
        sha256: hex digest of the bytes; it alone decides.
        subdir: the conda platform that an arch-specific file is for; None serves all.
        suite: of Debian's, that the file is from; "" for the machine's own.
        pool: the file's path in Debian's archive, or "" where a mirror has no pool.
        url: the upstream project's own address of the same bytes: the only way for client
            `url`, a second way for the others.
        wheel: what a wheel says of itself.
        deb: what a Debian package of another suite, which is repackaged, says of itself.
    """

    client: Client
    package: str = Field(min_length=1)
    version: str = ""
    file: str = Field(pattern=r"^[^/\s]+$")
    size: int = Field(gt=0)
    sha256: Sha256
    subdir: str | None = None
    suite: str = Field(default="", pattern=r"^[a-z]*$")
    pool: str = Field(default="", pattern=r"^(pool/[^\s/][^\s]*)?$")
    url: str | None = Field(default=None, pattern=r"^https?://")
    wheel: WheelMetadata | None = None
    deb: DebMetadata | None = None

    @field_validator("file")
    @classmethod
    def _file_is_a_name(cls, value: str) -> str:
        if value in (".", ".."):
            raise ValueError("not a file name")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.client == "url" and not self.url:
            raise ValueError("client 'url' needs the field 'url'")
        if self.client == "pypi-wheel" and self.wheel is None:
            raise ValueError("client 'pypi-wheel' needs the field 'wheel'")
        if self.client != "url" and not self.version:
            raise ValueError(f"client '{self.client}' needs the field 'version'")
        for field in ("suite", "pool"):
            if getattr(self, field) and not self.client.startswith("debian-"):
                raise ValueError(f"only Debian's clients may have the field '{field}'")
        return self

    @property
    def spec(self) -> str:
        """How a person names it: `pypi:numpy==2.3.4`, `debian-source:openssl=3.0.1-1`, …"""
        if self.client == "url":
            return f"url:{self.url}"
        separator = "==" if self.client.startswith("pypi") else "="
        return f"{PREFIXES.get(self.client, self.client)}:{self.package}{separator}{self.version}"

    @property
    def area(self) -> str:
        """The area of Debian's archive that it is in, "non-free"; "" for the main one."""
        path = self.pool.removeprefix("pool/").removeprefix("updates/")  # security's archive
        area = path.partition("/")[0] if self.suite else ""
        return "" if area == "main" else area

    @property
    def is_glibc(self) -> bool:
        """Whether a sysroot is made from this file."""
        return self.client == "debian-binary" and self.package == GLIBC_PACKAGE

    @property
    def recipe_url(self) -> str:
        """What stands in a recipe's `source.url` for this file."""
        if self.url:
            return self.url
        separator = f"=={self.version}" if self.client.startswith("pypi") else ""
        return f"{SCHEMES[self.client]}://{self.package}{separator}/{self.file}"


class SourcesLock(_Strict):
    """All locked sources, sorted by client, package, version and file."""

    sources: list[Source] = []

    @model_validator(mode="after")
    def _no_duplicates(self) -> Self:
        seen: set[str] = set()
        for source in self.sources:
            if source.sha256 in seen:
                raise ValueError(f"{source.file}: its sha256 stands in the file twice")
            seen.add(source.sha256)
        return self

    @classmethod
    def load(cls, path: Path) -> SourcesLock:
        """Read the lock file.

        Raises:
            InputError: the file is absent, is not YAML, or an entry is wrong; the message
                names the file, the entry and the field.
        """
        return load_model(
            path,
            cls.model_validate,
            lambda data, error: InputError(_explain(path, data, error), _RESTORE),
            absent=InputError(
                f"{path}: there is no such sources lock", "make it with `ddlce sources add`"
            ),
            hint=_RESTORE,
        )

    def dump(self, path: Path) -> None:
        """Write the lock: sorted, the same text for the same sources, replaced atomically."""
        write_atomic(path, self.to_yaml())

    def to_yaml(self) -> str:
        """The lock file's text."""
        ordered = sorted(
            self.sources, key=lambda s: (s.client, s.package, s.version, s.subdir or "", s.file)
        )
        data = {"sources": [s.model_dump(exclude_defaults=True) for s in ordered]}
        return HEADER + yamltext.dump(data, width=100)

    def by_sha256(self, sha256: str) -> Source:
        """The source with this digest.

        Raises:
            KeyError: no locked source has it.
        """
        for source in self.sources:
            if source.sha256 == sha256:
                return source
        raise KeyError(sha256)


_RESTORE = "restore the file with git, or make the entry again with `ddlce sources add`"


def _explain(path: Path, data: object, error: ValidationError) -> str:
    """The message about the first error: file, entry and field."""
    first = error.errors()[0]
    where = list(first["loc"])
    entry = ""
    if where[:1] == ["sources"] and len(where) > 1 and isinstance(data, dict):
        index = int(where[1])
        raw = data["sources"][index]
        name = raw.get("file") or raw.get("package") if isinstance(raw, dict) else None
        entry = f"entry {index + 1} ({name or 'unnamed'})"
        where = where[2:]
    field = ".".join(str(part) for part in where)
    parts = [str(path), entry, f"field '{field}'" if field else ""]
    return ": ".join(part for part in parts if part) + f": {first['msg']}"
