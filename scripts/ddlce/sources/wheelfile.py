"""Reading a wheel: its metadata, and what its compiled files need from outside."""

from __future__ import annotations

import configparser
import re
import tempfile
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from license_expression import ExpressionError
from packaging.metadata import RawMetadata, parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from ddlce.elf import MAGIC, BrokenElfError, parse_elf
from ddlce.errors import SourceError
from ddlce.licences import licensing
from ddlce.model.source import WheelMetadata

#: Parts of glibc; `__glibc` stands for them.
GLIBC = re.compile(
    r"^(lib(c|m|dl|rt|pthread|util|resolv|anl|nsl|crypt|mvec|BrokenLocale)\.so\.\d+"
    r"|ld-linux.*\.so\.\d+|ld64\.so\.\d+)$"
)

#: Trove classifiers that say exactly one SPDX licence.
CLASSIFIERS = {
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Apache Software License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "ISC License (ISCL)": "ISC",
    "The Unlicense (Unlicense)": "Unlicense",
    "Python Software Foundation License": "PSF-2.0",
    "Historical Permission Notice and Disclaimer (HPND)": "HPND",
}

#: What authors write in `License:` and mean exactly one SPDX licence by.
SPELLINGS = {
    "apache 2.0": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "bsd 2-clause": "BSD-2-Clause",
    "mit license": "MIT",
    "the mit license": "MIT",
    "mpl-2.0": "MPL-2.0",
    "psf": "PSF-2.0",
}

#: Libraries of NVIDIA's wheels, which hold prefixes and no modules.
TOOLKIT = re.compile(r"nvidia/[^/]+/lib/[^/]+")

#: Top-level folders that some wheels install and nobody imports.
NOT_IMPORTED = {"test", "tests", "doc", "docs", "example", "examples", "benchmarks"}


#: What a wheel may be instead of one that can be installed. Scripts of one name, and texts that
#: are not UTF-8, are for the installer of wheels, too.
UNREADABLE = (
    *(InvalidWheelFilename, zipfile.BadZipFile, KeyError, InvalidRequirement, NotImplementedError),
    *(configparser.Error, UnicodeDecodeError, zlib.error, EOFError),
)


@dataclass
class _Elf:
    """What the compiled files of a wheel say together."""

    provided: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    glibc: set[str] = field(default_factory=set)


def read_wheel(path: Path) -> WheelMetadata:
    """Read everything that a recipe needs from a wheel.

    Raises:
        SourceError: not a wheel, or its metadata is unreadable; names the file.
    """
    try:
        _, _, _, tags = parse_wheel_filename(path.name)
        with zipfile.ZipFile(path) as wheel:
            return _read(wheel, sorted(str(tag) for tag in tags))
    except UNREADABLE as error:
        reason = " ".join(str(error).split())
        raise SourceError(f"{path}: not a readable wheel: {reason}") from error


def _read(wheel: zipfile.ZipFile, tags: list[str]) -> WheelMetadata:
    names = [info.filename for info in wheel.infolist() if not info.is_dir()]
    info = next((n.partition("/")[0] for n in names if n.endswith(".dist-info/WHEEL")), None)
    if info is None:
        raise KeyError("no .dist-info/WHEEL inside")
    raw, _ = parse_email(wheel.read(f"{info}/METADATA"))
    flags = wheel.read(f"{info}/WHEEL").decode()
    elf = _read_elf(wheel)
    return WheelMetadata(
        name=raw["name"],
        version=raw["version"],
        tags=tags,
        pure=bool(re.search(r"(?mi)^Root-Is-Purelib: true", flags)) and not elf.provided,
        requires_python=raw.get("requires_python", ""),
        requires_dist=[r for r in raw.get("requires_dist", []) if not of_an_extra(r)],
        scripts=_scripts(wheel, f"{info}/entry_points.txt", names),
        license=_license(raw),
        license_files=_license_files(raw, info, names),
        summary=raw.get("summary", "").strip(),
        homepage=homepage_of(raw),
        imports=import_names(names),
        needed=sorted(n for n in elf.needed - elf.provided if not GLIBC.match(n)),
        glibc=max(elf.glibc, key=Version, default=""),
        sonames=sorted(elf.shared),
    )


def of_an_extra(requirement: str) -> bool:
    """Whether only somebody who asks for an extra needs it."""
    marker = Requirement(requirement).marker
    if marker is None or "extra" not in str(marker):
        return False
    # An extra's name that no package uses: true only where the marker holds without any extra.
    return not re.search(r"\bor\b", str(marker)) or not marker.evaluate({"extra": "\0"})


def _scripts(wheel: zipfile.ZipFile, entry_points: str, names: list[str]) -> dict[str, str]:
    if entry_points not in names:
        return {}
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(wheel.read(entry_points).decode())
    found: dict[str, str] = {}
    for group in ("console_scripts", "gui_scripts"):
        if parser.has_section(group):
            found |= {k: v.split("[")[0].strip() for k, v in parser.items(group)}
    return dict(sorted(found.items()))


def _license(raw: RawMetadata) -> str:
    """An SPDX expression from the field made for it, then from the older ways; else ""."""
    trove = [
        CLASSIFIERS.get(c.rsplit(" :: ", 1)[-1], "")
        for c in raw.get("classifiers", [])
        if c.startswith("License :: ") and c != "License :: OSI Approved"
    ]
    title, _, body = raw.get("license", "").strip().partition("\n")
    candidates = [
        raw.get("license_expression", ""),
        SPELLINGS.get(title.strip().lower(), "" if body else title),
        trove[0] if len(trove) == 1 else "",
    ]
    return next((spdx for c in candidates if (spdx := normalise_license(c))), "")


def normalise_license(text: str) -> str:
    """The SPDX expression in its canonical spelling; "" if `text` is none."""
    if not text or "/" in text:
        return ""
    try:
        parsed = licensing().parse(text, validate=True, strict=True)
    except (ExpressionError, TypeError, ValueError):
        return ""
    if any("LicenseRef-scancode" in key for key in licensing().license_keys(parsed)):
        return ""
    return str(parsed) if parsed is not None else ""


def _license_files(raw: RawMetadata, info: str, names: list[str]) -> list[str]:
    named = {
        f"{info}/{where}{n}" for n in raw.get("license_files", []) for where in ("licenses/", "")
    }
    found = [name for name in names if name in named or name.startswith(f"{info}/licenses/")]
    if not found:  # older builders copy them beside METADATA without saying so
        usual = re.compile(r"^(licen[cs]e|copying|notice|copyright)", re.IGNORECASE)
        found = [n for n in names if n.startswith(info) and usual.match(PurePosixPath(n).name)]
    return sorted(found)


def homepage_of(raw: RawMetadata) -> str:
    """The project's page, from whichever field names it; "" if none does."""
    urls = {re.sub(r"[\W_]", "", k).lower(): v for k, v in raw.get("project_urls", {}).items()}
    keys = ("homepage", "home", "source", "sourcecode", "repository", "github", "documentation")
    found = raw.get("home_page") or next((urls[key] for key in keys if key in urls), "")
    return found if re.match(r"https?://", found or "") else ""


def import_names(names: list[str]) -> list[str]:
    """What `import` finds at the top of the wheel; below a namespace, its packages."""
    found: set[str] = set()
    for name in names:
        *folders, file = PurePosixPath(name).parts
        if folders and folders[0].endswith((".data", ".dist-info", ".libs")):
            continue
        if not folders and file.endswith((".py", ".so")):
            found.add(file.split(".")[0])
        elif folders and re.fullmatch(r"__init__\.(py|(.+\.)?so)", file):
            found.add(".".join(folders))
    outermost = {n for n in found if not any(n.startswith(f"{other}.") for other in found)}
    return sorted(n for n in outermost if all(_imported(part) for part in n.split(".")))


def _imported(part: str) -> bool:
    return part.isidentifier() and part not in NOT_IMPORTED and not part.startswith("_")


def _read_elf(wheel: zipfile.ZipFile) -> _Elf:
    elf = _Elf()
    with tempfile.TemporaryDirectory(prefix="ddlce-wheel-") as folder:
        for info in wheel.infolist():
            if info.is_dir() or info.file_size < 64:
                continue
            with wheel.open(info) as stream:
                if stream.read(len(MAGIC)) != MAGIC:
                    continue
            # A reader of ELF seeks, and a zip member can only be read forwards.
            path = Path(wheel.extract(info, folder))
            with path.open("rb") as seekable:
                _read_one_elf(seekable, info.filename, elf)
            path.unlink()
    return elf


def _read_one_elf(stream: IO[bytes], member: str, found: _Elf) -> None:
    name = PurePosixPath(member).name
    found.provided.add(name)
    try:
        elf = parse_elf(stream)
    except BrokenElfError as error:
        raise SourceError(f"{name} inside the wheel: a broken ELF file: {error}") from error
    if elf:
        found.provided |= {elf.soname} - {""}
        if TOOLKIT.fullmatch(member):
            found.shared |= {elf.soname} - {""}
        found.needed.update(elf.needed)
        found.glibc |= {elf.glibc} - {""}
