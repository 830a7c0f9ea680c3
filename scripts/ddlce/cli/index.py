"""`ddlce index`: publish the built packages as a channel."""

from __future__ import annotations

from ddlce.cli.common import JsonOption, PlatformOption, RootOption, app, out, print_json
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings, load_settings


@app.command(epilog="Example: ddlce index")
def index(
    subdir: PlatformOption = BUILD_PLATFORM, root: RootOption = None, json: JsonOption = False
) -> None:
    """Make the channel's index name the plan's packages, and the files beside it describe them.

    Older packages that a release under the root, or a lock in envs/locks, was made from stay in
    the channel without being in its index: what names them exactly still gets them.
    """
    from ddlce.channel import update_channel
    from ddlce.plan import make_plan, with_all_built

    settings = load_settings(root)
    plans = [with_all_built(settings, make_plan(settings))]
    if subdir != BUILD_PLATFORM:
        plans.append(with_all_built(settings, make_plan(settings, subdir), plans[0]))
    total, added = update_channel(settings, *plans)
    if json:
        print_json({"channel": str(settings.channel), "packages": total, "added": added})
    else:
        print_index(settings, total, added)


def print_index(settings: Settings, total: int, added: list[str]) -> None:
    """Say what the channel holds now."""
    out.print(f"index: {total} packages in {settings.channel}, {len(added)} added")
