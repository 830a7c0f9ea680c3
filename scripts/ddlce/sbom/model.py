"""The parts of a release, in no format's words."""

from __future__ import annotations

from dataclasses import dataclass, field

from packageurl import PackageURL


@dataclass(frozen=True)
class Origin:
    """A file that a package was made from.

    Attributes:
        file, sha256: of it.
        purl: `pkg:pypi/numpy@2.4.6` or `pkg:deb/debian/openssl@3.0.22-1`; "" where there is none.
        url: upstream's address of the same bytes, or "".
    """

    file: str
    sha256: str
    purl: str = ""
    url: str = ""


@dataclass(frozen=True)
class Patch:
    """A change of a source.

    Attributes:
        name: the patch's file in the recipe, or in Debian's source.
        sha256: of a file in the recipe; "" of Debian's, which the source's own sha256 covers.
        backport: whether upstream has it in a later release.
        holes: the numbers of the security holes that it closes, `CVE-2024-0450`.
    """

    name: str
    sha256: str = ""
    backport: bool = False
    holes: tuple[str, ...] = ()


@dataclass(frozen=True, order=True)
class Carried:
    """A part of a package that another project has made.

    Attributes:
        name: `libopenblas`.
        version: or "". Numbers in names of libraries count interfaces, not releases.
        purl: as the package's own SBOM has it, or "".
        file: its path in the environment; "" where it is linked into other files.
        told_by: the file that names it: an SBOM, metadata, or the library itself.
        license: an SPDX expression, or "".
    """

    name: str
    version: str
    purl: str
    file: str
    told_by: str
    license: str = ""


@dataclass(frozen=True)
class Component:
    """A package of a release.

    Attributes:
        name, version, build, subdir, file, sha256: of the lock.
        license: an SPDX expression, or "".
        texts: name → text of its licences.
        summary, homepage: from its recipe.
        depends: names of packages of the release.
        origins: the files that it was made from.
        patches: what was changed in them.
        carried: parts of others inside.
        compiled: the paths of its ELF files in the environment.
    """

    name: str
    version: str
    build: str
    subdir: str
    file: str
    sha256: str
    license: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    homepage: str = ""
    depends: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()
    patches: tuple[Patch, ...] = ()
    carried: tuple[Carried, ...] = ()
    compiled: tuple[str, ...] = ()

    @property
    def purl(self) -> str:
        """`pkg:conda/numpy@2.4.6?build=...&subdir=linux-64&type=conda`."""
        words = {"build": self.build, "subdir": self.subdir, "type": "conda"}
        return PackageURL("conda", None, self.name, self.version, words).to_string()
