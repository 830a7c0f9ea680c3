"""Adding wheels with all that they need: their lock entries, and their lines in a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from ddlce import yamltext
from ddlce.engine.variants import target_of
from ddlce.errors import InputError
from ddlce.files import write_atomic
from ddlce.model.source import Source, WheelMetadata
from ddlce.model.target import Target
from ddlce.settings import Settings
from ddlce.sources.closure import Closure, find_missing
from ddlce.sources.locking import changing, load_lock
from ddlce.sources.resolve import Request, Resolver, merged
from ddlce.wheels.depends import KnownPackage, applying, conda_version_spec, marker_environment
from ddlce.wheels.gaps import find_gaps
from ddlce.wheels.manifest import WheelEntry
from ddlce.wheels.recipe import library_dependencies, refuse_newer

#: How a table begins that is not there yet.
HEAD = "# Packages made from wheels, as those of wheels.yaml.\nwheels:\n"


@dataclass(frozen=True)
class Addition:
    """One package that was added to a table.

    Attributes:
        name: the package.
        source: its locked wheel.
        lines: its entry, as YAML.
        todo: what a person must still say in the entry; a sentence each.
    """

    name: str
    source: Source
    lines: tuple[str, ...]
    todo: tuple[str, ...]

    @property
    def text(self) -> str:
        """The entry in the table, with what is to do as comments."""
        todo = [f"    # to do: {sentence}" for sentence in self.todo]
        return "\n".join([f"  {self.name}:", *todo, *self.lines]) + "\n"


def add_with_dependencies(
    settings: Settings,
    requests: Sequence[Request],
    subdir: str,
    table: Path,
    known: Mapping[str, KnownPackage],
    without: Collection[str] = (),
) -> list[Addition]:
    """Lock wheels and all that they need and that is not there, and write their lines.

    Nothing is written until all of it is here and read.

    Args:
        table: the table that gets the lines; made where it is not there.
        known: the packages that there are, by canonical PyPI name.
        without: distributions that are left out, with what only they need.

    Raises:
        InputError, SourceError: as `find_missing` and `Resolver.resolve`.
    """
    closure = find_missing(settings, requests, known, subdir, without)
    resolver = Resolver(settings, subdir)
    found: list[Source] = []
    for each in closure.missing:
        found += resolver.resolve(Request("pypi-wheel", each.name, each.version))
    added = [_addition(settings, source, subdir, closure, known, without) for source in found]
    if not added:
        return []
    with changing(settings):
        before = table.read_text(encoding="utf-8") if table.is_file() else HEAD
        there = _names(before)  # another run may have added some of them since `known` was read
        added = [addition for addition in added if addition.name not in there]
        after = before.rstrip("\n") + "\n" + "".join(addition.text for addition in added)
        sources = [addition.source for addition in added]
        merged(load_lock(settings), sources).dump(settings.sources_lock)
        write_atomic(table, after)
    return added


def _names(table: str) -> set[str]:
    """The packages of a table, by canonical name."""
    return {canonicalize_name(str(name)) for name in yamltext.load(table)["wheels"] or ()}


def _addition(
    settings: Settings,
    source: Source,
    subdir: str,
    closure: Closure,
    known: Mapping[str, KnownPackage],
    without: Collection[str],
) -> Addition:
    assert source.wheel is not None  # the resolver was asked for a wheel
    wheel, target = source.wheel, target_of(settings.recipes, subdir)
    lines = tuple(_extras(wheel, target, closure, known))
    todo = [*_todo(wheel, target)]
    left_out = {canonicalize_name(name) for name in without}
    for requirement in applying(wheel.requires_dist, marker_environment(target)):
        if canonicalize_name(requirement.name) in left_out:
            todo.append(f"drop: it requires {requirement.name}, which was left out; say why")
    return Addition(canonicalize_name(source.package), source, lines, tuple(todo))


def _todo(wheel: WheelMetadata, target: Target) -> Iterator[str]:
    """What the metadata does not say, or what forbids the wheel; a sentence each."""
    for gap in find_gaps(WheelEntry(), wheel):
        texts = f" ({', '.join(wheel.license_files)})" if gap.field == "license" else ""
        yield f"{gap.field}: {gap.message}{texts}"
    for field, check in (
        ("version", lambda: refuse_newer(wheel, target)),
        ("ignore_needed", lambda: library_dependencies(wheel, WheelEntry(), {})),
    ):
        try:
            check()
        except InputError as error:
            yield f"{field}: {error.message}"


def _extras(
    wheel: WheelMetadata,
    target: Target,
    closure: Closure,
    known: Mapping[str, KnownPackage],
) -> Iterator[str]:
    """The entry's lines for requirements with extras, which conda does not have."""
    environment = marker_environment(target)
    asked = [
        requirement
        for requirement in applying(wheel.requires_dist, environment)
        if requirement.extras and canonicalize_name(requirement.name) in closure.chosen
    ]
    add: set[str] = set()
    todo, seen = [*asked], {str(requirement) for requirement in asked}
    while todo:
        each = todo.pop()
        name = canonicalize_name(each.name)
        conda = known[name].name if name in known else name
        add.add(f"{conda} {conda_version_spec(each.specifier)}".strip())
        for extra in each.extras:
            requires = closure.chosen[name].requires
            plain = {str(r) for r in applying(requires, environment)}
            more = {str(r): r for r in applying(requires, environment, extra)}
            todo += [r for text, r in more.items() if text not in plain | seen]
            seen |= more.keys()
    if asked:
        yield f"    drop: [{', '.join(canonicalize_name(each.name) for each in asked)}]"
        yield f"    add: [{', '.join(_quoted(spec) for spec in sorted(add))}]"
        named = ", ".join(f"{r.name}[{','.join(sorted(r.extras))}]" for r in asked)
        yield f"    why: the metadata asks for {named}, and conda has no extras."


def _quoted(spec: str) -> str:
    return f'"{spec}"' if set(spec) & set(",[]{}#&*!|>%@`") else spec
