"""Small real wheels and lock entries for them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from ddlce.files import sha256_file
from ddlce.model.source import Source
from ddlce.sources.wheelfile import read_wheel

#: conda_build_config.yaml of a tree that makes packages of wheels.
VARIANTS = 'python: ["3.11.* *_cpython"]\nc_stdlib_version: ["2.28"]\n'


def make_wheel(
    folder: Path,
    name: str = "demo",
    version: str = "1.0",
    *,
    metadata: tuple[str, ...] = ("License-Expression: MIT", "Home-page: https://demo.org"),
    files: dict[str, bytes] | None = None,
    scripts: str = "",
    license_text: bytes | None = b"do as you like\n",
    tag: str = "py3-none-any",
    executable: tuple[str, ...] = (),
    module: bool = True,
) -> Path:
    """Write `name-version-tag.whl`; `files` are beside the metadata, by path in the wheel."""
    info = f"{name}-{version}.dist-info"
    head = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {version}",
        f"Summary: {name} for tests",
        *metadata,
    ]
    content = dict(files or {})
    if module:
        content.setdefault(f"{name}/__init__.py", b"def main():\n    print('hello')\n")
    content[f"{info}/METADATA"] = "\n".join(head).encode() + b"\n"
    pure = "true" if tag.endswith("-any") else "false"
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    if scripts:
        content[f"{info}/entry_points.txt"] = scripts.encode()
    if license_text is not None:
        content[f"{info}/licenses/LICENSE"] = license_text
    content[f"{info}/RECORD"] = b""
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for member, data in content.items():
            entry = zipfile.ZipInfo(member)
            entry.external_attr = (0o755 if member in executable else 0o644) << 16
            wheel.writestr(entry, data)
    return path


def lock_wheel(path: Path, **changes: Any) -> Source:
    """The lock entry of a wheel file."""
    wheel = read_wheel(path)
    data: dict[str, Any] = {
        "client": "pypi-wheel",
        "package": wheel.name,
        "version": wheel.version,
        "file": path.name,
        "size": path.stat().st_size,
        "sha256": sha256_file(path),
        "subdir": None if wheel.pure else "linux-64",
        "wheel": wheel,
        **changes,
    }
    return Source.model_validate(data)
