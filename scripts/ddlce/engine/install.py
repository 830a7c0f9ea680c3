"""Installing exact packages into a prefix, through a cache of unpacked packages.

rattler's install is a sync: what is in the prefix and not in the list is removed. It takes no
notice of a frozen environment: the callers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from ddlce.engine.unpack import Hostile, NotLocked, fill
from ddlce.engine.view import VIEW, damaged, name_real_caches, shown
from ddlce.engine.worker import OnProgress, WorkerError, call, say, serve
from ddlce.errors import DdlceError, MachineError, SourceError, WorkError
from ddlce.files import not_yet_on_disk
from ddlce.model.envlock import LockedPackage
from ddlce.packagecache import find
from ddlce.trees import remove_tree
from ddlce.waiting import OnWait

#: What rattler makes in a prefix to find out what its file system can do, and removes if it can.
PROBES = ("symtest_????????-????-????-????-????????????", ".refprobe-??????")

#: How much of a cached package is checked before it is used.
Validation = Literal["skip", "fast", "full"]


@dataclass(frozen=True)
class CacheLayer:
    """One package cache: the first layer receives what is downloaded."""

    path: Path
    validation: Validation = "full"


@dataclass(frozen=True)
class InstallRequest:
    """What a prefix is to hold, and how it gets it.

    Attributes:
        packages: what to install.
        channels: name → URL of each channel.
        prefix: where the files go.
        layers: package caches, searched in this order.
        specs: what was asked for, recorded with the packages.
        final: the prefix that is written into files, when the folder will be renamed to it.
        installed: what the prefix has already; nothing is fetched for these.
        offline: use only caches and channels that are folders.
        progress: called for each package that is linked.
        on_wait: told once who else is bringing packages into the first cache.
    """

    packages: list[LockedPackage]
    channels: dict[str, str]
    prefix: Path
    layers: list[CacheLayer]
    specs: list[str]
    final: Path | None = None
    installed: Sequence[LockedPackage] = ()
    offline: bool = False
    progress: OnProgress | None = None
    on_wait: OnWait | None = None

    @property
    def needed(self) -> list[LockedPackage]:
        """The packages that the prefix does not have yet."""
        present = {(package.stem, package.sha256) for package in self.installed}
        return [p for p in self.packages if (p.stem, p.sha256) not in present]


def install(request: InstallRequest) -> None:
    """Make a prefix hold exactly the packages that are asked for.

    Raises:
        SourceError: a package cannot be had, or its bytes are not the locked ones.
        MachineError: the disk is full or a folder is not writable.
        WorkError: any other failure of the installer.
    """
    if request.offline:
        _refuse_network(request)
    channels = request.channels
    message = {
        "packages": [
            {**package.model_dump(mode="json"), "url": package.url(channels), "stem": package.stem}
            for package in request.packages
        ],
        "channels": channels,
        "prefix": str(request.prefix),
        "final": str(request.final) if request.final else None,
        "layers": [[str(layer.path), layer.validation] for layer in request.layers],
        "specs": request.specs,
        "needed": [package.stem for package in request.needed],
    }
    try:
        call("ddlce.engine.install", message, request.progress, request.on_wait)
    except WorkerError as error:
        raise _explain(error, request.prefix) from error
    # rattler's tag tells backup programs to leave the folder out; an environment is no cache.
    (request.prefix / "CACHEDIR.TAG").unlink(missing_ok=True)


def _refuse_network(request: InstallRequest) -> None:
    """Stop where a package is in no cache, and its channel is on the network.

    Raises:
        SourceError: names all of them.
    """
    absent = [
        f"{package.file}: in no cache, and the channel is on the network"
        for package in request.needed
        if urlsplit(package.url(request.channels)).scheme != "file"
        and not any(find(cache.path, package.stem, package.sha256) for cache in request.layers)
    ]
    if absent:
        raise _unavailable("\n".join(absent))


def _unavailable(problems: str) -> SourceError:
    return SourceError(
        "packages cannot be installed:\n  " + problems.replace("\n", "\n  "),
        "rebuild the channel and lock again (ddlce build, ddlce lock), open it to all who use it "
        "(chmod -R a+rX), or name a channel that has them with --channel",
    )


def _explain(error: WorkerError, prefix: Path) -> DdlceError:
    if error.kind == NotLocked.__name__:
        return _unavailable(error.text)
    if error.kind == MachineError.__name__:
        return MachineError(error.text, error.hint)
    if error.kind == Hostile.__name__:
        return SourceError(error.text, "do not use its channel before you know why")
    text = re.sub(r"\s*\n\s*", " ", error.text).strip().replace("Caused by: ", "")
    again = "check the channel, then run the command again"
    if "os error 28" in text or "os error 122" in text:
        return MachineError(
            f"no space left while installing into {prefix}",
            "free some space, or choose another file system with --root",
        )
    if "os error 13" in text or "os error 30" in text:
        return MachineError(f"cannot write: {text}", "choose a folder that you may write")
    return WorkError(f"cannot install into {prefix}: {text}", again)


def _install(request: dict[str, Any]) -> None:
    """The worker's side."""
    from rattler import MatchSpec
    from rattler import install as rattler_install
    from rattler.package_cache import PackageCache, PackageCacheLayer, ValidationMode

    modes = {
        "skip": ValidationMode.skip(),
        "fast": ValidationMode.fast(),
        "full": ValidationMode.full(),
    }
    needed, prefix = set(request["needed"]), Path(request["prefix"])
    caches = {Path(path): modes[mode] for path, mode in request["layers"]}
    unpacked = fill(
        [p for p in request["packages"] if p["stem"] in needed],
        list(caches),
        lambda who: say({"waiting": who}),
    )
    remove_tree(prefix / VIEW)
    # The caller brings all of the prefix to the disk at once.
    with not_yet_on_disk(), contextlib.ExitStack() as stack:
        stack.callback(remove_tree, prefix / VIEW)
        layers, views = [], []
        for number, (cache, mode) in enumerate(caches.items()):
            packages = {stem: folder for stem, folder in unpacked.items() if folder.parent == cache}
            view = stack.enter_context(shown(packages, prefix / VIEW / str(number)))
            layers.append(PackageCacheLayer(view).with_validation_mode(mode))
            views.append((packages, view))
        asyncio.run(
            rattler_install(
                [_record(package, request["channels"]) for package in request["packages"]],
                request["prefix"],
                package_cache=PackageCache.from_layers(layers),
                alternative_target_prefix=request["final"],
                # The binding wants its inner object here, unlike anywhere else (py-rattler 0.28).
                requested_specs=[MatchSpec(s)._match_spec for s in request["specs"]],
                show_progress=False,
                reporter=_Reporter(),
            )
        )
        for pattern in PROBES:
            for path in prefix.glob(pattern):
                path.unlink()
        _check_records(prefix, needed)
        problems = [line for packages, view in views for line in damaged(packages, view)]
        if problems:
            raise NotLocked("\n".join(problems))
        for packages, view in views:
            name_real_caches(prefix, packages, view)


def _check_records(prefix: Path, stems: set[str]) -> None:
    """Stop where a record is cut off: rattler does not tell when the disk took only a part.

    Raises:
        MachineError: names the packages, whose records are gone: the next run installs them anew.
    """
    paths = [prefix / "conda-meta" / f"{stem}.json" for stem in sorted(stems)]
    if cut := [path.stem for path in paths if is_cut(path)]:
        remove_cut(paths)
        raise MachineError(
            f"{prefix}: the disk did not take the whole record of {', '.join(cut)}",
            "see whether the disk is full (df) or fails (dmesg), then run the same command again",
        )


def is_cut(record: Path) -> bool:
    """Whether a package's record is not there, or not whole."""
    try:
        json.loads(record.read_bytes())
    except (FileNotFoundError, ValueError):
        return True
    return False


def remove_cut(records: Iterable[Path]) -> None:
    """Remove the records that are not whole: what they are of is installed anew."""
    for record in records:
        if is_cut(record):
            record.unlink(missing_ok=True)


def _record(package: dict[str, Any], channels: dict[str, str]) -> Any:
    from datetime import UTC, datetime

    from rattler import PackageRecord, RepoDataRecord
    from rattler.package import BuildString

    record = PackageRecord(
        name=package["name"],
        version=package["version"],
        build=BuildString(package["build"]),
        build_number=package["build_number"],
        subdir=package["subdir"],
        noarch=package["noarch"],
        depends=package["depends"],
        constrains=package["constrains"],
        sha256=bytes.fromhex(package["sha256"]),
        md5=bytes.fromhex(package["md5"]) if package["md5"] else None,
        size=package["size"],
        license=package["license"],
        python_site_packages_path=package["python_site_packages_path"],
    )
    if package["timestamp"] is not None:
        record.timestamp = datetime.fromtimestamp(package["timestamp"] / 1000, UTC)
    channel = channels.get(package["channel"], package["channel"])
    return RepoDataRecord(record, package["file"], package["url"], channel)


class _Reporter:
    """Tells the caller about each package that is linked."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0

    def on_transaction_start(self, total_operations: int) -> None:
        self.total = total_operations

    def on_link_start(self, operation: int, package_name: str) -> int:
        self.done += 1
        say({"progress": [self.done, self.total, package_name]})
        return operation

    def __getattr__(self, name: str) -> Any:
        """Every other event is of no interest; some of them must return a token."""
        if name.startswith("on_"):
            return lambda *_args: 0
        raise AttributeError(name)


if __name__ == "__main__":
    serve(_install)
