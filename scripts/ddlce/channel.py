"""The channel: a view of the plan's packages in the store, with their index."""

from __future__ import annotations

from pathlib import Path

from ddlce.engine.index import index_is_current, publish_index
from ddlce.env.layout import LOCK_COPY, Layout, clones
from ddlce.files import sha256_file
from ddlce.lock import all_locks
from ddlce.locks import locked
from ddlce.model.envlock import EnvLock
from ddlce.model.manifest import OWN_CHANNEL
from ddlce.ownership import check_place
from ddlce.plan import Plan, check_built, make_plan, with_all_built
from ddlce.settings import Settings
from ddlce.store import Store


def update_channel(settings: Settings, *plans: Plan) -> tuple[int, list[str]]:
    """Make the channel's subdirs hold exactly the packages of the plans.

    Packages of older digests leave the index: a solver must never choose between two builds of
    one version. The files of those that a lock names stay, for explicit lists and for `ddlce env
    create --lock`: neither asks the index. Others are only in the store.

    Args:
        plans: what was just built from; by default the build platform's, made anew. The plan of
            another platform wants that one beside it: `noarch` is one folder for both.

    Returns:
        How many packages the channel holds, and which were added.

    Raises:
        WorkError: a package of the plan was not built.
        MachineError: others could change the channel.
    """
    check_place(settings.channel, "the channel")
    plans = plans or (with_all_built(settings, make_plan(settings)),)
    store = Store(settings.store)
    found: dict[Path, str] = {}
    for plan in plans:
        check_built(store, plan)
        for output in (o for s in plan.steps.values() for o in s.outputs):
            found[store.package(output.subdir, output.filename)] = output.subdir
    packages = [(subdir, path) for path, subdir in found.items()]
    with locked(settings.channel / ".lock"):
        kept = _kept_files(settings, store, {(subdir, path.name) for subdir, path in packages})
        if index_is_current(settings.channel, packages, kept):
            return len(packages), []
        return len(packages), publish_index(settings.channel, packages, kept)


def standing_locks(settings: Settings) -> list[Path]:
    """The locks of the releases under the root, of this user's clones, and of the tree."""
    prefixes = [*Layout(settings.root).releases(), *clones()]
    return [
        *(p / LOCK_COPY for p in prefixes),
        *all_locks(settings),
    ]


def _kept_files(
    settings: Settings, store: Store, indexed: set[tuple[str, str]]
) -> list[tuple[str, Path]]:
    """(subdir, file) of the packages beside the index's that a lock names, where there are any.

    Raises:
        InputError: a lock is damaged; without it, a release's packages would be lost.
    """
    kept: dict[tuple[str, str], Path] = {}
    for path in standing_locks(settings):
        for package in EnvLock.load(path).packages:
            key = (package.subdir, package.file)
            if package.channel != OWN_CHANNEL or key in indexed or key in kept:
                continue
            published = settings.channel / package.subdir / package.file
            built = store.package(*key)
            if published.is_file() and published.stat().st_size == package.size:
                kept[key] = published
            elif built.is_file() and sha256_file(built) == package.sha256:
                kept[key] = built
    return [(subdir, path) for (subdir, _name), path in kept.items()]
