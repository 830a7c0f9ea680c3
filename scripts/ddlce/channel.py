"""The channel: a view of the plan's packages in the store, with their index."""

from __future__ import annotations

from ddlce.engine.index import index_is_current, publish_index, remove_leftovers
from ddlce.errors import WorkError
from ddlce.files import locked
from ddlce.plan import make_plan
from ddlce.settings import Settings
from ddlce.store import Store


def update_channel(settings: Settings) -> tuple[int, list[str]]:
    """Make the channel hold exactly the packages of the plan.

    Packages of older digests stay in the store, and in the caches of the environments that use
    them, but leave the channel: a solver must never choose between two builds of one version.

    Returns:
        How many packages the channel holds, and which were added.

    Raises:
        WorkError: a package of the plan was not built.
    """
    plan = make_plan(settings)
    if plan.to_build:
        names = ", ".join(step.name for step in plan.to_build)
        raise WorkError(f"not built yet: {names}", "build them first: ddlce build")
    store = Store(settings.store)
    packages = [
        (output.subdir, store.package(output.subdir, output.filename))
        for step in plan.steps.values()
        for output in step.outputs
    ]
    with locked(settings.cache / "locks" / "channel"):
        if index_is_current(settings.channel, packages):
            return len(packages), []
        remove_leftovers(settings.channel)
        return len(packages), publish_index(settings.channel, packages)
