"""`ddlce env install`: more packages in a clone, from the channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ddlce.engine.install import CacheLayer, InstallRequest, install
from ddlce.engine.solve import solve
from ddlce.engine.worker import OnProgress
from ddlce.env.clone import locked_package
from ddlce.env.finish import finish, finish_records
from ddlce.env.freeze import protect_links, refuse_frozen
from ddlce.env.layout import LOCK_COPY, Origin, require_origin, user_locks
from ddlce.env.records import Record, read_records
from ddlce.env.unfinished import put_in_order
from ddlce.errors import InputError
from ddlce.files import explain_os_errors, on_disk_at_end
from ddlce.lock import spec_name
from ddlce.model.envlock import EnvLock, LockedPackage
from ddlce.model.manifest import OWN_CHANNEL
from ddlce.settings import Settings
from ddlce.waiting import OnWait

#: Called with packages that are new, and channel name → address, before one is unpacked.
Check = Callable[[list[LockedPackage], dict[str, str]], None]


@dataclass(frozen=True)
class Changed:
    """The outcome of `install_specs`.

    Attributes:
        prefix: the environment.
        added, removed: packages as `name version build`; an update is in both.
    """

    prefix: Path
    added: list[str]
    removed: list[str]


def install_specs(
    settings: Settings,
    prefix: Path,
    specs: list[str],
    *,
    channel: str | None = None,
    check: Check = lambda packages, channels: None,
    offline: bool = False,
    progress: OnProgress | None = None,
    on_wait: OnWait | None = None,
) -> Changed:
    """Add packages to a clone; what it has stays unless a spec makes it change.

    That is true of what conda, mamba or another lock have put there, too. What they have removed
    does not come back.

    Args:
        channel: another address of our own channel than the one it was installed from.
        check: refuses packages that the clone does not have yet.

    Raises:
        InputError: frozen, not ours, or the specs cannot be satisfied together with what the
            environment was asked to contain.
        SourceError: a channel or a package cannot be read.
    """
    with user_locks(settings, prefix, on_wait=on_wait):
        refuse_frozen(prefix)
        origin = require_origin(prefix)
        channels = origin.channels | ({OWN_CHANNEL: channel} if channel else {})
        records = put_in_order(prefix, settings.pkgs)
        before = {p.name: p for p in map(locked_package, records)}
        wanted = [spec for spec in origin.specs if spec_name(spec) in before]
        wanted = list(dict.fromkeys([*wanted, *specs]))
        others = specs_of_others(records, wanted)
        packages = _solve(settings, prefix, wanted, others, channels, origin.platform)
        held = {p.sha256 for p in before.values()}
        check([p for p in packages if p.sha256 not in held], channels)
        request = InstallRequest(
            *(packages, channels, prefix, [CacheLayer(settings.pkgs)], wanted),
            installed=list(before.values()),
            offline=offline,
            progress=progress,
            on_wait=on_wait,
        )
        install(request)
        updated = origin.model_copy(update={"specs": wanted, "channels": channels})
        after = _note(prefix, updated, specs, {p.stem for p in before.values()})
    changed = {n for n in before | after if _identity(before, n) != _identity(after, n)}
    return Changed(
        prefix,
        [_identity(after, name) for name in sorted(changed & after.keys())],
        [_identity(before, name) for name in sorted(changed & before.keys())],
    )


def specs_of_others(records: list[Record], specs: list[str]) -> list[str]:
    """Specs that keep the packages which conda, mamba or another lock have put into a clone.

    Args:
        specs: what it is asked to contain; what these lead to may go when it is needed no more.

    Returns:
        For each package that they do not lead to, what was asked for when it was installed.
    """
    by_name = {str(record.data["name"]): record for record in records}
    names, reached = [spec_name(spec) for spec in specs], set[str]()
    while names:
        name = names.pop()
        if name not in reached:
            reached.add(name)
            depends = by_name[name].data.get("depends", []) if name in by_name else []
            names += [spec_name(spec) for spec in depends]
    return [_requested(record) for name, record in by_name.items() if name not in reached]


def _requested(record: Record) -> str:
    """The spec by which a package was asked for, else its name; the channel may be another now."""
    said = [record.data.get("requested_spec"), *(record.data.get("requested_specs") or ())]
    name = str(record.data["name"])
    texts = (str(spec).rpartition("::")[2] for spec in said)
    return next((text for text in texts if spec_name(text) == name), name)


def _solve(
    settings: Settings,
    prefix: Path,
    wanted: list[str],
    others: list[str],
    channels: dict[str, str],
    platform: str,
) -> list[LockedPackage]:
    """The packages of the changed clone; where there are none, the error names the obstacle."""
    virtual = EnvLock.load(prefix / LOCK_COPY).virtual_packages
    cache = settings.cache / "repodata"
    try:
        return solve([*wanted, *others], channels, platform, virtual, cache, prefix)
    except InputError as error:
        if error.hint or not others:
            raise
        raise InputError(
            error.message,
            f"{prefix} also has {', '.join(others)}, which ddlce did not put there and does not "
            "remove; where it is in the way: conda remove",
        ) from error


def _note(
    prefix: Path, origin: Origin, specs: list[str], known: set[str]
) -> dict[str, LockedPackage]:
    """Update the clone's origin and history after a change.

    Args:
        known: the packages that it had, as `name-version-build`.

    Returns:
        All packages that it has, by name.
    """
    with explain_os_errors(prefix):
        records = read_records(prefix)
        after = {p.name: p for p in map(locked_package, records)}
        new = [each for each in records if each.stem not in known]
        finish_records(new)
        with on_disk_at_end(prefix):
            for each in new:
                each.save()
            protect_links(prefix, new)
        finish(prefix, origin, f"ddlce env install {' '.join(specs)}", records, specs=specs)
    return after


def _identity(packages: dict[str, LockedPackage], name: str) -> str:
    package = packages.get(name)
    return f"{name} {package.version} {package.build}" if package else ""
