"""The host names of this machine's package registries, read from its clients' own settings."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from ddlce.programs import ask, own_python

SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d"))


def registry_hosts() -> frozenset[str]:
    """Hosts that pip, apt and npm fetch from; a client that is absent adds none."""
    text = "\n".join([*_pip(), *_apt(), *_npm()])
    hosts = map(_host, re.findall(r"https?://[^\s'\"\]]+", text))
    return frozenset(host for host in hosts if "." in host and not _is_number(host))


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # a setting that is no address names no host
        return ""


def _is_number(host: str) -> bool:
    return re.fullmatch(r"[\d.]+", host) is not None


def _pip() -> list[str]:
    listed = _output(*own_python("-m", "pip", "config", "list"))
    # Where nothing is set, pip uses what it has built in.
    default = "from pip._internal.models.index import PyPI as p; print(p.url, 'https://'+p.file_storage_domain)"
    return [listed, _output(*own_python("-c", default))]


def _apt() -> list[str]:
    files = [f for place in SOURCES for f in ([place] if place.is_file() else place.glob("*"))]
    return [f.read_text(errors="replace") for f in files if f.suffix in (".list", ".sources")]


def _npm() -> list[str]:
    return [_output("npm", "config", "get", "registry")]


def _output(*command: str) -> str:
    try:
        done = ask(command, timeout=30)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
