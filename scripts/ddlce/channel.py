"""The channel: a view of the plan's packages in the store, with their index."""

from __future__ import annotations

from ddlce.engine.index import index_is_current, publish_index, remove_leftovers
from ddlce.errors import WorkError
from ddlce.files import locked
from ddlce.plan import Plan, is_built, make_plan
from ddlce.settings import Settings
from ddlce.store import Store


def update_channel(settings: Settings, plan: Plan | None = None) -> tuple[int, list[str]]:
    """Make the channel hold exactly the packages of the plan.

    Packages of older digests stay in the store, and in the caches of the environments that use
    them, but leave the channel: a solver must never choose between two builds of one version.

    Args:
        settings: the folders.
        plan: what was just built from; made anew by default.

    Returns:
        How many packages the channel holds, and which were added.

    Raises:
        WorkError: a package of the plan was not built.
    """
    plan = plan or make_plan(settings)
    store = Store(settings.store)
    steps = plan.steps.values()
    missing = [s.name for s in steps if not is_built(store, s.name, s.digest, s.outputs)]
    if missing:
        raise WorkError(f"not built yet: {', '.join(missing)}", "build them first: ddlce build")
    packages = [
        (output.subdir, store.package(output.subdir, output.filename))
        for step in steps
        for output in step.outputs
    ]
    with locked(settings.cache / "locks" / "channel"):
        if index_is_current(settings.channel, packages):
            return len(packages), []
        remove_leftovers(settings.channel)
        return len(packages), publish_index(settings.channel, packages)
