"""`ddlce env remove`: removing an environment."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ddlce.env.layout import (
    CURRENT,
    Layout,
    check_unambiguous,
    clone_target,
    find_env,
    partials,
    read_origin,
    remove_partials,
    user_locks,
)
from ddlce.env.names import name_releases
from ddlce.errors import InputError
from ddlce.files import explain_os_errors
from ddlce.ownership import check_place
from ddlce.settings import Settings
from ddlce.trees import (
    check_removable,
    refuse_in_use,
    remove_tree,
)
from ddlce.waiting import OnWait, waiting_lock


def remove(settings: Settings, name: str, on_wait: OnWait | None = None) -> Path:
    """Remove a clone, or a release that is not the default one; returns its prefix.

    Where a run before was killed, what it left is removed.

    Raises:
        InputError: there is none of that name, or two, it is the default release, or a process of
            this machine runs from it.
        MachineError: it belongs to another user; nothing was changed.
    """
    check_unambiguous(settings, name)
    try:
        prefix = find_env(settings, name)
    except InputError:
        if gone := _remove_rest(settings, name, on_wait):
            return gone
        raise
    record = read_origin(prefix)
    is_release = record is not None and record.kind == "release"
    layout = Layout(settings.root)
    if is_release:
        layout = Layout(prefix.parents[2])  # not always that of the settings: a path may be given
        check_place(prefix.parent, "the root")
    with (
        waiting_lock(layout.lock, on_wait)
        if is_release
        else user_locks(settings, prefix, on_wait=on_wait)
    ):
        if is_release and (prefix.parent / CURRENT).resolve() == prefix:
            raise InputError(
                f"{prefix} is the default release of {prefix.parent.name}, which users load",
                "make another one the default first: ddlce env default ENV/RELEASE-DIGEST",
            )
        if read_origin(prefix) is None:
            raise InputError(f"{prefix} was removed by another process", "see: ddlce env list")
        check_removable(prefix)
        refuse_in_use(prefix)
        remove_tree(prefix)
        if is_release:
            if (mark := layout.candidate_mark(prefix)).exists():
                with explain_os_errors(mark):
                    mark.unlink()
            name_releases(layout)
    return prefix


def _remove_rest(settings: Settings, name: str, on_wait: OnWait | None) -> Path | None:
    """Remove what is left of an environment whose removal was killed; where it was, if anywhere."""
    layout = Layout(settings.root)
    places = {layout.envs / name: waiting_lock(layout.lock, on_wait)}
    with contextlib.suppress(InputError):  # no name of a clone
        target = clone_target(name)
        places[target] = user_locks(settings, target, on_wait=on_wait)
    for place, lock in places.items():
        if partials(place):
            with lock:
                if partials(place):  # else another process was filling it
                    remove_partials(place)
                    return place
    return None
