"""`ddlce env list`: complete releases, and the user's clones and overlays."""

from __future__ import annotations

from ddlce.cli.common import JsonOption, RootOption, err, out, print_json
from ddlce.settings import load_settings


def list_envs(root: RootOption = None, json: JsonOption = False) -> None:
    """List complete releases, the default ones marked, and the user's clones and overlays."""
    from ddlce.env.layout import Layout, clones, read_origin
    from ddlce.overlay.model import overlays, read_overlay

    layout = Layout(load_settings(root).root)
    rows = []
    for prefix in [*layout.releases(), *clones()]:
        record = read_origin(prefix)
        if record is None:  # removed while we looked
            continue
        rows.append(
            {
                "prefix": str(prefix),
                "kind": record.kind,
                "env": record.env,
                "release": record.release,
                "digest": record.digest,
                "default": layout.current(record.env) == prefix.resolve(),
                "candidate": record.kind == "release" and layout.is_candidate(prefix),
            }
        )
    for prefix in overlays():
        overlay = read_overlay(prefix)
        if overlay is not None:
            rows.append(
                {
                    "prefix": str(prefix),
                    "kind": "overlay",
                    "env": overlay.env,
                    "release": overlay.version,
                    "digest": overlay.digest,
                    "default": False,
                    "candidate": False,
                }
            )
    if json:
        print_json(rows)
        return
    for row in rows:
        mark = "*" if row["default"] else " "
        kind = "candidate" if row["candidate"] else row["kind"]
        out.print(f"{mark} {kind:<9} {row['env']} {row['release']}  {row['prefix']}", markup=False)
    if not rows:
        err.print("no environments; make one with: ddlce env create")
