"""A small real root with releases whose activation scripts set awkward values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddlce.env.layout import ORIGIN, Layout, Origin

#: What the scripts below set, under the names they set; every value is one a quoting bug breaks.
TRICKY = {
    "DDLT_DOLLAR": "a$HOME b${PATH}c $(id) `id`",
    "DDLT_BRACKETS": "[exit 3] ][ ;puts oops; #no",
    "DDLT_BRACES": "{x} }{ {a,b} {{",
    "DDLT_QUOTES": 'it\'s "quoted" \\ back\\slash \\n \\',
    "DDLT_LUA": "]] ]=] .. os.exit() -- [[",
    "DDLT_UNICODE": "Grüße 世界 ±",
    "DDLT_URL": "http://user:pw@host:80/a?b=1&c=%20*",
    "DDLT_SPACES": "  two  spaces at both ends  ",
    "DDLT_BANG": "!history !! ~ * ? ^x",
    "DDLT_EMPTY": "",
}

PATHS_SCRIPT = """\
if [ -n "${GDAL_DATA:-}" ]; then export _BACKUP_GDAL_DATA="$GDAL_DATA"; fi
export GDAL_DATA="$CONDA_PREFIX/share/gdal"
export PKG_CONFIG_PATH="$CONDA_PREFIX/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
export XML_CATALOG_FILES="${XML_CATALOG_FILES:-} file://$CONDA_PREFIX/etc/xml/catalog"
export DDLT_DEFAULT="${DDLT_DEFAULT:-ours}"
export PATH="$CONDA_PREFIX/libexec:$PATH"
export DDLT_HOME="$HOME/data"
local_only=1
"""


def sh_quote(value: str) -> str:
    """A POSIX shell word that means `value`."""
    return "'" + value.replace("'", "'\\''") + "'"


def add_package(prefix: Path, name: str, version: str, **fields: object) -> None:
    """A conda-meta record."""
    record: dict[str, Any] = {
        "name": name,
        "version": version,
        "build": "h_0",
        "files": [],
        **fields,
    }
    record["paths_data"] = {"paths": [{"_path": file} for file in record["files"]]}
    path = prefix / "conda-meta" / f"{name}-{version}-h_0.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def add_script(prefix: Path, name: str, text: str) -> Path:
    """An activation script."""
    path = prefix / "etc" / "conda" / "activate.d" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def make_prefix(root: Path, release: str = "1.0.0", digest: str = "0123456789abcdef") -> Path:
    """A release of `ddl-ce` under `root` with two programs, four packages and no scripts."""
    layout = Layout(root)
    prefix = layout.prefix("ddl-ce", release, digest)
    origin = Origin(
        kind="release",
        env="ddl-ce",
        release=release,
        digest=digest,
        platform="linux-64",
        manifest="envs/ddl-ce.yaml",
        channels={"ddl-ce": "file:///srv/channel"},
        specs=["ddl-ce", "python 3.11.*"],
        pkgs=str(layout.pkgs),
    )
    torch = "lib/python3.11/site-packages/torch-2.13.0.dist-info/METADATA"
    depends = ["python >=3.11,<3.12", "pytorch 2.13.0", "ddl"]
    add_package(prefix, "ddl-ce", release, depends=depends, summary="Trains on many ranks")
    add_package(prefix, "python", "3.11.13")
    add_package(prefix, "pytorch", "2.13.0", files=[torch])
    add_package(prefix, "ddl", "1.0.0")
    (prefix / ORIGIN).write_text(origin.model_dump_json())
    (prefix / ".condarc").write_text("channels: []\n")
    for program in ("python", "ddlrun", "ddlce"):
        path = prefix / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{program} of {release}"\n')
        path.chmod(0o755)
    return prefix


def make_tricky_prefix(
    root: Path, release: str = "1.0.0", values: Mapping[str, str] = TRICKY
) -> Path:
    """`make_prefix` with activation that sets, adds to and defaults awkward variables."""
    prefix = make_prefix(root, release, "0" * 16)
    lines = [f"export {name}={sh_quote(value)}" for name, value in values.items()]
    add_script(prefix, "10-tricky.sh", "\n".join(lines) + f"\nexport DDLT_RELEASE={release}\n")
    add_script(prefix, "20-paths.sh", PATHS_SCRIPT)
    state = {"version": 1, "env_vars": {"DDLT_STATE": "from the manifest: yes"}}
    (prefix / "conda-meta" / "state").write_text(json.dumps(state))
    return prefix


def set_current(prefix: Path) -> None:
    """Make a release the default one, as `ddlce env create` does."""
    link = prefix.parent / "current"
    link.unlink(missing_ok=True)
    link.symlink_to(prefix.name)
