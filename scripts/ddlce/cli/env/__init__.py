"""`ddlce env`: create, choose, list, verify, clone, change and remove environments."""

from __future__ import annotations

import typer

from ddlce.cli.common import app
from ddlce.cli.env.check import check
from ddlce.cli.env.clone import clone
from ddlce.cli.env.create import create
from ddlce.cli.env.default import default
from ddlce.cli.env.gc import gc
from ddlce.cli.env.image import image
from ddlce.cli.env.install import install
from ddlce.cli.env.kernel import kernel
from ddlce.cli.env.list import list_envs
from ddlce.cli.env.overlay import overlay
from ddlce.cli.env.remove import remove
from ddlce.cli.env.verify import verify

group = typer.Typer(
    no_args_is_help=True,
    help="Install releases, clone them, check and remove them.",
    epilog="Example: ddlce env create && ddlce env clone mine",
)
group.command(epilog="Example: ddlce env create ddl-ce --root /opt/ddl-ce")(create)
group.command(epilog="Example: ddlce env default ddl-ce/2026.11-0123abcd")(default)
group.command("list", epilog="Example: ddlce env list --json")(list_envs)
group.command(epilog="Example: ddlce env verify ddl-ce")(verify)
group.command(epilog="Example: ddlce env clone mine")(clone)
group.command(epilog="Example: ddlce env overlay mine --release ddl-ce")(overlay)
group.command(epilog="Example: ddlce env check mine")(check)
group.command(epilog="Example: ddlce env kernel --overlay mine")(kernel)
group.command(epilog="Example: ddlce env image ddl-ce --for /local/ddl-ce")(image)
group.command(epilog="Example: ddlce env install mine 'numpy >=2'")(install)
group.command(epilog="Example: ddlce env remove mine")(remove)
group.command(epilog="Example: ddlce env gc --keep 2 --dry-run")(gc)
app.add_typer(group, name="env")
