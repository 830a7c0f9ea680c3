"""The channel: a view of the plan's packages in the store, with their index."""

from __future__ import annotations

from pathlib import Path

from ddlce.engine.index import index_is_current, publish_index, remove_leftovers
from ddlce.files import locked
from ddlce.plan import Plan, check_built, make_plan
from ddlce.settings import Settings
from ddlce.store import Store


def update_channel(settings: Settings, *plans: Plan) -> tuple[int, list[str]]:
    """Make the channel's subdirs hold exactly the packages of the plans.

    Packages of older digests stay in the store, and in the caches of the environments that use
    them, but leave the channel: a solver must never choose between two builds of one version.

    Args:
        settings: the folders.
        plans: what was just built from; by default the build platform's, made anew. The plan of
            another platform wants that one beside it: `noarch` is one folder for both.

    Returns:
        How many packages the channel holds, and which were added.

    Raises:
        WorkError: a package of the plan was not built.
    """
    plans = plans or (make_plan(settings),)
    store = Store(settings.store)
    found: dict[Path, str] = {}
    for plan in plans:
        check_built(store, plan)
        for output in (o for s in plan.steps.values() for o in s.outputs):
            found[store.package(output.subdir, output.filename)] = output.subdir
    packages = [(subdir, path) for path, subdir in found.items()]
    with locked(settings.cache / "locks" / "channel"):
        if index_is_current(settings.channel, packages):
            return len(packages), []
        remove_leftovers(settings.channel)
        return len(packages), publish_index(settings.channel, packages)
