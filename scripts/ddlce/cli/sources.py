"""`ddlce sources`: make, renew and check the entries of sources.lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddlce.cli.common import JsonOption, err, out, print_json
from ddlce.cli.fetch import LOCK
from ddlce.errors import DdlceError, InputError, WorkError
from ddlce.platforms import BUILD_PLATFORM

if TYPE_CHECKING:
    from ddlce.model.source import Source, SourcesLock
    from ddlce.settings import Settings
    from ddlce.sources.resolve import Request

sources = typer.Typer(
    help="Make, renew and check the entries of sources.lock.", no_args_is_help=True
)

SubdirOption = Annotated[str, typer.Option(help="Platform of arch-specific files.")]
SuiteOption = Annotated[str, typer.Option(help="Debian's suite, where not the machine's own.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(sources, name="sources")


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
    files: Annotated[
        str, typer.Option("--file", help="Only these files of a Debian source (pattern).")
    ] = "*",
    url: Annotated[
        str | None, typer.Option(help="Upstream's own address of the same bytes: a second way.")
    ] = None,
    sha256: Annotated[
        str | None, typer.Option(help="What the file must have; demanded for url:.")
    ] = None,
    subdir: SubdirOption = BUILD_PLATFORM,
    suite: SuiteOption = "",
) -> None:
    """Download sources and lock them; an entry of the same package is replaced.

    Example: ddlce sources add pypi:numpy==2.3.4 debian-source:bzip2 --file '*.orig.*'
    """
    from ddlce.sources.resolve import Request

    parsed = [Request.parse(text) for text in requests]
    if (url or sha256) and len(parsed) != 1:
        raise InputError("--url and --sha256 belong to one source", "add the sources one by one")
    if suite and not all(request.client.startswith("debian-") for request in parsed):
        raise InputError("--suite is for Debian's sources", "add the others without it")
    _lock(parsed, subdir, files=files, url=url, sha256=sha256, suite=suite)


@sources.command()
def update(
    requests: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Locked packages, e.g. pypi:numpy[==V]."),
    ],
) -> None:
    """Move locked packages to their newest version, or to the one named.

    A second address (`url`) is dropped: it belongs to the old version.

    Example: ddlce sources update debian-source:openssl
    """
    from ddlce.sources.resolve import Request

    _, lock = _load()
    for request in map(Request.parse, requests):
        old = [
            s for s in lock.sources if (s.client, s.package) == (request.client, request.package)
        ]
        if not old or request.client == "url":
            raise InputError(
                f"{LOCK} has no {request.client} {request.package} to update",
                "lock it with `ddlce sources add`",
            )
        for subdir in sorted({s.subdir or BUILD_PLATFORM for s in old}):
            _lock([request], subdir, files=_same_files(old))


@sources.command()
def check(json: JsonOption = False) -> None:
    """Check that recipes and sources.lock agree: every source locked, no entry unused.

    Example: ddlce sources check
    """
    settings, lock = _load()
    used = _used_sources(settings, lock)
    locked = {source.sha256 for source in lock.sources}
    problems = [
        f"{where}: {url} (sha256 {digest}) is not locked"
        for digest, (url, where) in used.items()
        if digest not in locked
    ]
    problems += [
        f"{LOCK}: {source.spec} ({source.file}) is used by no recipe"
        for source in lock.sources
        if source.sha256 not in used
    ]
    if json:
        print_json({"sources": len(lock.sources), "problems": problems})
    elif not problems:
        out.print(f"{len(lock.sources)} sources locked, all of them used")
    if problems:
        raise WorkError("\n".join(problems), "ddlce sources sync")


@sources.command()
def sync() -> None:
    """Lock what the recipes name and is not locked; drop what no recipe uses.

    A recipe's source needs a url and its sha256; nothing else is accepted for it.

    Example: ddlce sources sync
    """
    from ddlce.files import locked
    from ddlce.model.source import SourcesLock
    from ddlce.sources.resolve import request_for

    settings, lock = _load()
    used = _used_sources(settings, lock)
    known = {source.sha256 for source in lock.sources}
    for digest, (url, where) in used.items():
        if digest not in known:
            try:
                request, file = request_for(url)
                _lock([request], BUILD_PLATFORM, files=file, sha256=digest, keep_versions=True)
            except DdlceError as error:
                error.message = f"{where}: {error.message}"
                raise
    with locked(settings.cache / "sources.lock.lock"):
        _, lock = _load()
        unused = [source for source in lock.sources if source.sha256 not in used]
        kept = [source for source in lock.sources if source.sha256 in used]
        if unused:
            SourcesLock(sources=kept).dump(settings.tree / LOCK)
    for source in unused:
        out.print(f"dropped {source.spec} ({source.file})")


@sources.command()
def recipe(
    name: Annotated[str, typer.Argument(help="A package made from a wheel or a Debian package.")],
    subdir: SubdirOption = BUILD_PLATFORM,
) -> None:
    """Print the recipe.yaml that is generated for a package of a platform.

    Example: ddlce sources recipe numpy
    """
    from ddlce import yamltext
    from ddlce.recipes import WHEELS, load_recipes

    settings, _ = _load()
    made = {n: r for n, r in load_recipes(settings, subdir).items() if r.generated}
    if name not in made:
        from difflib import get_close_matches

        near = get_close_matches(name, made, n=3)
        raise InputError(
            f"no package {name!r} of {subdir} is made from a wheel or a Debian package",
            f"did you mean {', '.join(near)}?" if near else f"see {settings.recipes / WHEELS}",
        )
    typer.echo(yamltext.dump(made[name].data, width=100), nl=False)


def _load() -> tuple[Settings, SourcesLock]:
    from ddlce.model.source import SourcesLock
    from ddlce.settings import load_settings

    settings = load_settings()
    path = settings.tree / LOCK
    return settings, SourcesLock.load(path) if path.exists() else SourcesLock()


def _used_sources(settings: Settings, lock: SourcesLock) -> dict[str, tuple[str, Path]]:
    """sha256 → url and user of every source that a recipe of any platform, or a tool, downloads.

    Raises:
        InputError: a source without a sha256.
    """
    from ddlce.emulate.sysroot import is_glibc
    from ddlce.platforms import PLATFORMS
    from ddlce.recipes import load_recipes

    found = {s.sha256: (s.recipe_url, settings.tree / LOCK) for s in lock.sources if is_glibc(s)}
    recipes = [r for subdir in PLATFORMS for r in load_recipes(settings, subdir).values()]
    for recipe in recipes:
        for source in recipe.sources():
            if "url" not in source:
                continue
            digest = str(source.get("sha256", ""))
            if len(digest) != 64:
                raise InputError(
                    f"{recipe.path}: {source['url']} has no sha256 of 64 hex digits",
                    "give the one that upstream publishes, or that of a file that you trust",
                )
            found[digest] = (str(source["url"]), recipe.path)
    return found


def _lock(
    requests: list[Request],
    subdir: str,
    *,
    files: str = "*",
    url: str | None = None,
    sha256: str | None = None,
    keep_versions: bool = False,
    suite: str = "",
) -> None:
    """Resolve without the lock file's lock, then merge under it: two `add` at once both count."""
    from ddlce.files import locked
    from ddlce.sources.resolve import Resolver, merged

    settings, _ = _load()
    resolver = Resolver(settings, subdir, suite=suite)
    for request in requests:
        with err.status(f"{request.client} {request.package}"):
            found = resolver.resolve(request, files=files, url=url, sha256=sha256)
        with locked(settings.cache / "sources.lock.lock"):
            _, lock = _load()
            merged(lock, found, keep_versions).dump(settings.tree / LOCK)
        for source in found:
            out.print(f"locked {source.spec} ({source.file}, {_size(source)})")


def _same_files(old: list[Source]) -> str:
    """The pattern by which the files of a Debian source were chosen, as far as it shows."""
    return "*.orig*" if all(".orig" in s.file for s in old if s.client == "debian-source") else "*"


def _size(source: Source) -> str:
    return f"{source.size / 1e6:.1f} MB"
