"""`ddlce cache`, and what `ddlce build` does with one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddlce.cli.common import CudaOption, PlatformOption, SetOption, app, err, out
from ddlce.cli.keys import SignOption, load_signers
from ddlce.errors import InputError, SourceError
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings, load_settings

if TYPE_CHECKING:
    from ddlce.plan import Plan, Step

CacheOption = Annotated[
    str | None,
    typer.Option(
        "--cache",
        help="Take signed packages from this address or folder, instead of the settings file's; "
        "'none': build all.",
        show_default=False,
    ),
]


cache = typer.Typer(
    help="Share built packages with other machines.",
    no_args_is_help=True,
    epilog="Example: ddlce cache push /srv/www/cache --sign builder",
)
app.add_typer(cache, name="cache")


@cache.command("push")
def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The cache's folder.")],
    sign: SignOption,
    packages: Annotated[
        list[str] | None, typer.Option("--package", help="A recipe or package; all by default.")
    ] = None,
    subdir: PlatformOption = BUILD_PLATFORM,
    cuda: CudaOption = "",
    extra: SetOption = "",
) -> None:
    """Put the packages that are built here into a cache, with a signed statement of each.

    Example: ddlce cache push /srv/www/cache --sign ~/keys/builder
    """
    from ddlce.cache.push import push as fill
    from ddlce.cli.env._common import say_waiting
    from ddlce.plan import make_plan
    from ddlce.store import Store

    settings = load_settings()
    signers = load_signers(sign)
    plan = make_plan(settings, subdir, cuda, extra)
    plan = plan.restrict(packages) if packages else plan
    number = fill(
        plan,
        Store(settings.store),
        folder.absolute(),
        signers,
        report=lambda name: out.print(name, markup=False),
        on_wait=say_waiting,
    )
    unbuilt = f", {len(plan.to_build)} are not built" if plan.to_build else ""
    out.print(f"cache: {number} of {len(plan.steps)} recipes are new in {folder}{unbuilt}")


def take_cached(settings: Settings, plan: Plan, named: str | None) -> Plan:
    """The plan, after what a cache has of it was taken; says what was refused, and why.

    Args:
        named: by the option; None: by the settings file, if it names one.

    Raises:
        InputError: a cache is named, and no keys that are trusted.
    """
    from ddlce.trust.policy import load_policy

    policy = load_policy()
    said = policy.cache if policy else None
    if named == "none" or not (named or said):
        return plan
    if said is None:
        raise InputError(
            "--cache: no settings file says whose packages are trusted",
            "write `cache:` with `at:` and `keys:` into it; see the site guide",
        )
    from ddlce.cache.take import Cache, take
    from ddlce.lock import channel_address
    from ddlce.store import Store
    from ddlce.trust.keys import load_trusted

    address = channel_address(named or said.at, "--cache")
    cache = Cache(address, [load_trusted(Path(path)) for path in said.keys])

    def refuse(step: Step, why: str) -> None:
        err.print(
            f"cache: {step.name} ({step.short}) is refused, and built here: {why}", markup=False
        )

    wanted = len(plan.to_build)
    try:
        with err.status(f"taking packages from {address}"):
            plan, number = take(plan, Store(settings.store), cache, refuse)
    except SourceError as error:
        err.print(f"cache: not used: {error.message}", markup=False)
        return plan
    out.print(f"cache: {number} of {wanted} recipes from {address}", markup=False)
    return plan
