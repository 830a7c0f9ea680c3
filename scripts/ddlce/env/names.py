"""Names by which conda finds releases: `<env>-<release>`, and `<env>` for the default one.

conda looks a name up in its folders of environments (`envs_dirs`), where a link does. A release's
own folder has a digest in its name, and no link replaces it where paths must not change under a
running job: activation and the modulefile keep to the real path.
"""

from __future__ import annotations

import os
from pathlib import Path

from ddlce.env.layout import CURRENT, Layout, is_gone, read_origin
from ddlce.files import explain_os_errors, link_atomic, make_folder


def name_releases(layout: Layout) -> None:
    """Make the links under `layout.names` those of the releases that are there now.

    Of two releases with one version, the default one has the name, else the newer one. Releases
    for another platform have none: they run here only under emulation; nor have candidates, which
    users are not to find. A release that cannot be read just now keeps its name. Call it under the
    root's lock.

    Raises:
        MachineError: the folder cannot be written.
    """
    wanted = _wanted(layout)
    folder = layout.names
    with explain_os_errors(folder):
        make_folder(folder)
        for name, target in wanted.items():
            text = os.path.relpath(target, folder)
            link = folder / name
            if not (link.is_symlink() and str(link.readlink()) == text):
                link_atomic(link, text)
        for link in folder.iterdir():
            if link.is_symlink() and link.name not in wanted and is_gone(link):
                link.unlink()


def _wanted(layout: Layout) -> dict[str, Path]:
    """Name → what it stands for."""
    wanted: dict[str, Path] = {}
    for folder in sorted(layout.envs.glob("*/")):
        current = layout.current(folder.name)
        default = read_origin(current) if current else None
        if default is None:
            continue
        releases = [prefix for prefix in layout.releases() if prefix.parent == folder]
        releases.sort(key=lambda prefix: (prefix == current, prefix.stat().st_mtime))
        for prefix in releases:
            origin = read_origin(prefix)
            is_for_users = not layout.is_candidate(prefix)
            if origin and origin.platform == default.platform and is_for_users:
                wanted[f"{folder.name}-{origin.release}"] = prefix
        wanted[folder.name] = folder / CURRENT
    return wanted
