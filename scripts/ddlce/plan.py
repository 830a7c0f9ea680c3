"""The plan: which recipes are to be built, which are reused, in which order, and why."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ddlce import digest as digests
from ddlce.engine.render import Output, load_variants, render
from ddlce.errors import InputError
from ddlce.recipes import VARIANTS, Recipe, load_recipes
from ddlce.settings import Settings
from ddlce.store import Store


@dataclass(frozen=True)
class Step:
    """One recipe in the plan.

    Attributes:
        recipe: the room.
        outputs: its packages, with their final build strings.
        digest: 64 hex digits; `short` of them are in the build strings.
        parts: what the digest was made from.
        after: the recipes that must be there before it can be built and tested.
        reuse: whether all its packages are in the store already.
        why: the reason for building; empty for reuse.
    """

    recipe: Recipe
    outputs: tuple[Output, ...]
    digest: str
    parts: digests.Parts = field(repr=False)
    after: frozenset[str]
    reuse: bool
    why: tuple[str, ...]

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.recipe.name

    @property
    def short(self) -> str:
        """The digest as it stands in file names."""
        return self.digest[: digests.SHORT]


@dataclass(frozen=True)
class Plan:
    """All steps, in an order in which each comes after what it needs."""

    steps: dict[str, Step]
    subdir: str

    def closure(self, name: str) -> list[str]:
        """The recipes below `name`, in plan order, without itself."""
        found: set[str] = set()
        todo = [*self.steps[name].after]
        while todo:
            current = todo.pop()
            if current not in found:
                found.add(current)
                todo += self.steps[current].after
        return [n for n in self.steps if n in found]

    def restrict(self, names: Iterable[str]) -> Plan:
        """The plan for some recipes (or packages) and what they stand on.

        Raises:
            InputError: a name that is neither a recipe nor a package.
        """
        owners = {o.name: s.name for s in self.steps.values() for o in s.outputs}
        wanted: set[str] = set()
        for name in names:
            room = name if name in self.steps else owners.get(name)
            if room is None:
                raise InputError(f"{name}: no such recipe or package", "list them with: ddlce plan")
            wanted |= {room, *self.closure(room)}
        return Plan({n: s for n, s in self.steps.items() if n in wanted}, self.subdir)

    @property
    def to_build(self) -> list[Step]:
        """The steps that are not reused."""
        return [step for step in self.steps.values() if not step.reuse]


def make_plan(settings: Settings, subdir: str = "linux-64") -> Plan:
    """Read all recipes and say what must be built.

    Raises:
        InputError: a recipe that does not parse, an unknown dependency, a cycle.
    """
    recipes = load_recipes(settings, subdir)
    variants = load_variants(settings.recipes / VARIANTS)
    outputs = {
        name: [output for output, _ in render(recipe, variants, subdir)]
        for name, recipe in recipes.items()
    }
    outputs = _with_run_exports(outputs)
    owners = _owners(recipes, outputs)
    store = Store(settings.store)
    steps: dict[str, Step] = {}
    for name in _order(recipes, outputs, owners):
        below = {owners[d] for o in outputs[name] for d in o.build_deps | o.host_deps} - {name}
        parts = digests.digest_parts(
            recipes[name], outputs[name], {b: steps[b].digest for b in sorted(below)}
        )
        digest = digests.combine(parts)
        final = tuple(
            output for output, _ in render(recipes[name], variants, subdir, digest[: digests.SHORT])
        )
        reuse = is_built(store, name, digest, final)
        steps[name] = Step(
            recipe=recipes[name],
            outputs=final,
            digest=digest,
            parts=parts,
            after=frozenset(owners[d] for o in outputs[name] for d in o.all_deps) - {name},
            reuse=reuse,
            why=() if reuse else _why(store, name, parts),
        )
    return Plan(steps, subdir)


def is_built(store: Store, name: str, digest: str, outputs: tuple[Output, ...]) -> bool:
    """Whether the store holds these outputs of a recipe, made from the inputs of this digest."""
    if not outputs or not all(store.has(o.subdir, o.filename) for o in outputs):
        return False
    if all(digest[: digests.SHORT] in o.build for o in outputs):
        return True
    # A build string that conda-forge prescribes (`mpi 1.0 mpich`) says nothing of the inputs.
    record = store.last_record(name)
    return record is not None and record.digest == digest


def _why(store: Store, name: str, parts: digests.Parts) -> tuple[str, ...]:
    record = store.last_record(name)
    if record is None:
        return ("never built",)
    return tuple(digests.changes(record.parts, parts)) or ("not in the store",)


def _with_run_exports(outputs: dict[str, list[Output]]) -> dict[str, list[Output]]:
    """The outputs with what their build and host packages add to them (run_exports).

    What a compiler exports, say libgcc, must be there in the host environment already.
    """
    known = {output.name: output for made in outputs.values() for output in made}

    def extended(output: Output) -> Output:
        build = [known[n] for n in output.build_deps if n in known]
        host = [known[n] for n in output.host_deps if n in known]
        strong = frozenset().union(*(o.strong_exports for o in build))
        weak = frozenset().union(*(o.strong_exports | o.weak_exports for o in host))
        return replace(
            output,
            host_deps=output.host_deps | strong - {output.name},
            run_deps=output.run_deps | (strong | weak) - {output.name},
        )

    return {name: [extended(output) for output in made] for name, made in outputs.items()}


def _owners(recipes: dict[str, Recipe], outputs: dict[str, list[Output]]) -> dict[str, str]:
    """Package name → recipe; every dependency must have one."""
    owners: dict[str, str] = {}
    for name, made in outputs.items():
        for output in made:
            if owners.setdefault(output.name, name) != name:
                raise InputError(
                    f"{recipes[name].path}: makes the package {output.name!r}, "
                    f"and so does {recipes[owners[output.name]].path}",
                    "one package has one recipe; rename or delete one of them",
                )
    for name, made in outputs.items():
        for output in made:
            for missing in sorted(output.all_deps - owners.keys()):
                raise InputError(
                    f"{recipes[name].path}: {output.name} depends on {missing!r}, "
                    "which no recipe makes",
                    "mend the name, or add a recipe for it (docs/packager-guide.md)",
                )
    return owners


def _order(
    recipes: dict[str, Recipe], outputs: dict[str, list[Output]], owners: dict[str, str]
) -> list[str]:
    graph = {
        name: sorted({owners[d] for o in made for d in o.all_deps} - {name})
        for name, made in sorted(outputs.items())
    }
    try:
        return list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        names = error.args[1][::-1]
        raise InputError(
            "the recipes depend on each other in a cycle: " + " → ".join(names),
            f"take one of these dependencies out; start with {recipes[names[0]].path}",
        ) from error
