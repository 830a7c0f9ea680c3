"""`ddlce sources`: make, renew and check the entries of sources.lock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from ddlce.cli.common import CudaOption, JsonOption, SetOption, app, err, out, print_json
from ddlce.errors import InputError, WorkError
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings, load_settings

if TYPE_CHECKING:
    from ddlce.model.source import Source
    from ddlce.sources.resolve import Request

sources = typer.Typer(
    help="Make, renew and check the entries of sources.lock.", no_args_is_help=True
)
app.add_typer(sources, name="sources")

PIP_CHOOSES = (
    "--with-dependencies lets pip choose: it takes none of --file, --url, --sha256, --beside and "
    "--suite"
)

PlatformOption = Annotated[
    str, typer.Option("--platform", "--subdir", help="Platform of arch-specific files.")
]
SuiteOption = Annotated[str, typer.Option(help="Debian's suite, where not the machine's own.")]
AreaOption = Annotated[
    str, typer.Option(help="Of that suite: contrib or non-free, where not the machine's own.")
]

FilesOption = Annotated[
    str, typer.Option("--file", help="Only these files of a Debian source (pattern).")
]
UrlOption = Annotated[
    str | None, typer.Option(help="Upstream's own address of the same bytes: a second way.")
]
DigestOption = Annotated[
    str | None, typer.Option(help="What the file must have; demanded for url:.")
]
BesideOption = Annotated[
    bool, typer.Option("--beside", help="Let other versions of the package stand.")
]
DependenciesOption = Annotated[
    bool,
    typer.Option(
        "--with-dependencies", help="Of wheels: all that they need too, and a line for each."
    ),
]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option("--without", help="A dependency that is left out, with what only it needs."),
]
LinesOption = Annotated[
    str, typer.Option("--set", help="The set that gets the lines; all builds by default.")
]


@sources.command()
def add(
    requests: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="pypi:NAME[==V], pypi-sdist:NAME[==V], debian-source:NAME[=V], "
            "debian-binary:NAME[=V], url:https://…",
        ),
    ],
    files: FilesOption = "*",
    url: UrlOption = None,
    sha256: DigestOption = None,
    beside: BesideOption = False,
    subdir: PlatformOption = BUILD_PLATFORM,
    suite: SuiteOption = "",
    area: AreaOption = "",
    with_dependencies: DependenciesOption = False,
    without: WithoutOption = None,
    extra: LinesOption = "",
) -> None:
    """Download sources and lock them; an entry of the same package is replaced.

    With --with-dependencies, pip's resolver chooses; no version that is locked already changes.

    Example: ddlce sources add pypi:numpy==2.3.4 debian-source:bzip2 --file '*.orig.*'
             ddlce sources add --with-dependencies pypi:transformers pypi:datasets
    """
    from ddlce.sources.locking import lock_sources
    from ddlce.sources.resolve import Request

    parsed = [Request.parse(text) for text in requests]
    if (url or sha256) and len(parsed) != 1:
        raise InputError("--url and --sha256 belong to one source", "add the sources one by one")
    if suite and not all(request.client.startswith("debian-") for request in parsed):
        raise InputError("--suite is for Debian's sources", "add the others without it")
    if area and not suite:
        raise InputError("--area is of a suite", "name it: --suite SUITE")
    settings = load_settings()
    if with_dependencies:
        if files != "*" or url or sha256 or beside or suite:
            raise InputError(PIP_CHOOSES, "add that source alone, without --with-dependencies")
        _add_all(settings, parsed, subdir, extra, without or [])
        return
    if without or extra:
        raise InputError("--without and --set need --with-dependencies", "add it")
    for request in parsed:
        with err.status(f"{request.client} {request.package}"):
            locked = lock_sources(
                *(settings, request, subdir),
                files=files,
                url=url,
                sha256=sha256,
                keep_versions=beside,
                suite=suite,
                area=area,
            )
        _say_locked(locked)


@sources.command()
def update(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Locked packages, e.g. pypi:numpy[==V], or 'pypi:jupyter*' for several.",
        ),
    ],
) -> None:
    """Move locked packages to their newest version, or to the one named.

    Of several wheels, pip's resolver chooses versions that fit one another and all other locked
    wheels. A second address (`url`) is dropped: it belongs to the old version.

    Example: ddlce sources update debian-source:openssl
             ddlce sources update 'pypi:jupyter*' pypi:notebook
    """
    from ddlce.sources.updating import chosen, update_sources

    settings = load_settings()
    group = chosen(settings, words)
    for spec, why in group.left.items():
        out.print(f"left {spec}: {why}", markup=False)
    with err.status("asking pip and apt"):
        moved = [*update_sources(settings, group.requests)]
    _say_locked(moved)


@sources.command()
def check(json: JsonOption = False) -> None:
    """Check that recipes and sources.lock agree: every source locked, no entry unused.

    Example: ddlce sources check
    """
    from ddlce.sources.locking import compare, load_lock

    settings = load_settings()
    count, problems = len(load_lock(settings).sources), compare(settings)
    if json:
        print_json({"sources": count, "problems": problems})
    elif not problems:
        out.print(f"{count} sources locked, all of them used")
    if problems:
        raise WorkError("\n".join(problems), "ddlce sources sync")


@sources.command()
def sync() -> None:
    """Lock what the recipes name and is not locked; drop what no recipe uses.

    A recipe's source needs a url and its sha256; nothing else is accepted for it.

    Example: ddlce sources sync
    """
    from ddlce.sources.locking import drop_unused, lock_missing

    settings = load_settings()
    for source in lock_missing(settings):
        _say_locked([source])
    for source in drop_unused(settings):
        out.print(f"dropped {source.spec} ({source.file})")


@sources.command()
def recipe(
    name: Annotated[str, typer.Argument(help="A package made from a wheel or a Debian package.")],
    subdir: PlatformOption = BUILD_PLATFORM,
    cuda: CudaOption = "",
    extra: SetOption = "",
) -> None:
    """Print the recipe.yaml that is generated for a package of a platform.

    Example: ddlce sources recipe numpy
    """
    from ddlce import yamltext
    from ddlce.recipes import WHEELS, load_cuda_recipes, load_recipes
    from ddlce.recipes.sets import load_set_recipes

    settings = load_settings()
    if cuda:
        recipes = load_cuda_recipes(settings, cuda, subdir)
    elif extra:
        recipes = load_set_recipes(settings, extra, subdir)
    else:
        recipes = load_recipes(settings, subdir)
    generated = {str(r.data["package"]["name"]): r for r in recipes.values() if r.generated}
    if name not in generated:
        from difflib import get_close_matches

        near = get_close_matches(name, generated, n=3)
        raise InputError(
            f"no package {name!r} of {subdir} is made from a wheel or a Debian package",
            f"did you mean {', '.join(near)}?"
            if near
            else f"give it a line in {settings.recipes / WHEELS}",
        )
    typer.echo(yamltext.dump(generated[name].data, width=100), nl=False)


def _add_all(
    settings: Settings, requests: list[Request], subdir: str, extra: str, without: list[str]
) -> None:
    """Lock wheels with their dependencies, write their lines, and say what is left to do."""
    from ddlce.recipes import WHEELS
    from ddlce.recipes.sets import known_wheels, set_table
    from ddlce.sources.additions import add_with_dependencies

    table = set_table(settings, extra) if extra else settings.recipes / WHEELS
    known = known_wheels(settings, extra)
    with err.status("asking pip's resolver"):
        added = add_with_dependencies(settings, requests, subdir, table, known, without)
    _say_locked(addition.source for addition in added)
    if not added:
        out.print("all of it is there already")
        return
    todo = [(addition.name, sentence) for addition in added for sentence in addition.todo]
    out.print(f"{len(added)} packages are in {table}; to do there: {len(todo)}", markup=False)
    for name, sentence in todo:
        out.print(f"  {name}: {sentence}", markup=False)


def _say_locked(sources: Iterable[Source]) -> None:
    for source in sources:
        out.print(f"locked {source.spec} ({source.file}, {source.size / 1e6:.1f} MB)")
