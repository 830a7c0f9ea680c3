"""Solving: from match specs to the exact packages of one platform."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from ddlce.engine.worker import WorkerError, call, serve
from ddlce.errors import InputError, SourceError
from ddlce.model.envlock import LockedPackage

#: Fields of a channel's record that a lock keeps; the others are the server's affair.
KEPT = (
    "name",
    "version",
    "build",
    "build_number",
    "subdir",
    "sha256",
    "md5",
    "size",
    "depends",
    "constrains",
    "noarch",
    "license",
    "timestamp",
    "python_site_packages_path",
)


def solve(
    specs: list[str],
    channels: dict[str, str],
    platform: str,
    virtual_packages: dict[str, str],
    cache: Path,
    installed: Path | None = None,
) -> list[LockedPackage]:
    """The packages that satisfy `specs`, sorted by name.

    Args:
        channels: name → URL, in order of priority.
        platform: conda subdir; `noarch` is always searched too.
        virtual_packages: name → version of what the target machine has. The machine that
            solves does not count.
        cache: where indexes of remote channels are kept.
        installed: a prefix whose packages are preferred to others.

    Raises:
        InputError: a spec does not parse, or nothing satisfies the specs; carries the solver's
            reason.
        SourceError: a channel cannot be read.
    """
    request = {
        "specs": specs,
        "channels": list(channels.values()),
        "platform": platform,
        "virtual_packages": virtual_packages,
        "cache": str(cache),
        "installed": str(installed) if installed else None,
    }
    try:
        found = _call(request)
    except WorkerError as error:
        raise _explain(error, channels, platform) from error
    names = {url.rstrip("/"): name for name, url in channels.items()}
    packages = [_locked(record, names) for record in found]
    return sorted(packages, key=lambda p: p.name)


def _call(request: dict[str, Any]) -> Any:
    """Ask the worker; once more without its cache where the cache is what fails.

    rattler 0.28 takes a 304 answer without validators (Python's http.server) for an error.
    """
    try:
        return call("ddlce.engine.solve", request)
    except WorkerError as error:
        if "304 Not Modified" not in error.text:
            raise
    with tempfile.TemporaryDirectory() as fresh:
        return call("ddlce.engine.solve", {**request, "cache": fresh})


def _locked(record: dict[str, Any], names: dict[str, str]) -> LockedPackage:
    kept = {key: record[key] for key in KEPT if record.get(key) is not None}
    url = str(record["channel"]).rstrip("/")
    return LockedPackage.of({**kept, "file": record["fn"], "channel": names.get(url, url)}, url)


def _explain(error: WorkerError, channels: dict[str, str], platform: str) -> Exception:
    where = ", ".join(channels.values())
    if error.kind == "SolverError":
        reason = _readable(error.text)
        return InputError(f"no set of packages satisfies the specs on {platform}:\n{reason}")
    if error.kind in ("InvalidMatchSpecError", "ParseMatchSpecError"):
        return InputError(f"not a package spec: {error.text}", "write e.g. 'numpy >=2' or 'numpy'")
    return SourceError(
        f"cannot read the channel {where}: {' '.join(error.text.split())}",
        "check the address; for the channel of this tree run: ddlce build && ddlce index",
    )


def _readable(text: str) -> str:
    """The solver's reason; a package that is installed and in the channel stands there once."""
    text = re.sub(r"^Cannot solve the request because of:\s*", "", text).strip()
    lines: list[str] = []
    for line in text.splitlines():
        if lines and line.strip("│├└─ ") == lines[-1].strip("│├└─ "):
            lines.pop()
        lines.append(line.rstrip())
    return "\n".join(lines)


def _solve(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The worker's side."""
    from rattler import (
        Gateway,
        GenericVirtualPackage,
        MatchSpec,
        PackageName,
        PrefixRecord,
        Version,
    )
    from rattler import solve as rattler_solve
    from rattler.package import BuildString

    prefix = request["installed"]
    installed = [PrefixRecord.from_path(p) for p in _records(Path(prefix))] if prefix else []
    records = asyncio.run(
        rattler_solve(
            request["channels"],
            [MatchSpec(spec) for spec in request["specs"]],
            gateway=Gateway(cache_dir=Path(request["cache"])),
            platforms=[request["platform"], "noarch"],
            locked_packages=installed,
            virtual_packages=[
                GenericVirtualPackage(PackageName(name), Version(version), BuildString("0"))
                for name, version in request["virtual_packages"].items()
            ],
        )
    )
    return [json.loads(record.to_json()) for record in records]


def _records(prefix: Path) -> list[Path]:
    return sorted((prefix / "conda-meta").glob("*-*-*.json"))


if __name__ == "__main__":
    serve(_solve)
