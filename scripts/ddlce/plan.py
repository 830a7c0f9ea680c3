"""The plan: which recipes are to be built, which are reused, in which order, and why."""

from __future__ import annotations

import graphlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ddlce import digest as digests
from ddlce.engine.render import Output, render
from ddlce.engine.variants import VARIANTS, Variants, load_variants
from ddlce.errors import InputError, WorkError
from ddlce.platforms import BUILD_PLATFORM
from ddlce.recipes import Recipe, load_recipes
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
        subdir: the platform that it is built for; noarch packages are made on the build platform.
        name: the recipe's name; in a plan for another platform, `NAME@linux-64` for what is
            compiled for the build platform.
    """

    recipe: Recipe
    outputs: tuple[Output, ...]
    digest: str
    parts: digests.Parts = field(repr=False)
    after: frozenset[str]
    reuse: bool
    why: tuple[str, ...]
    subdir: str = BUILD_PLATFORM
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.recipe.name)

    @property
    def record(self) -> str:
        """The name under which the store remembers the step's builds."""
        return record_name(self.recipe.name, self.subdir)

    @property
    def short(self) -> str:
        """The digest as it stands in file names."""
        return self.digest[: digests.SHORT]


@dataclass(frozen=True)
class Plan:
    """All steps, in an order in which each comes after what it needs.

    Attributes:
        steps: by name.
        subdir: the platform that the plan is for.
        absent: recipes that the build platform has and this one has not, with the reason.
    """

    steps: dict[str, Step]
    subdir: str
    absent: dict[str, str] = field(default_factory=dict)

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

    def sandbox(self, name: str) -> list[str]:
        """The recipes whose packages the build and the tests of `name` may use, in plan order.

        What is below a package on the build platform is of no use to one for another platform,
        so there a step's `after` names all of it.
        """
        step = self.steps[name]
        if step.subdir == BUILD_PLATFORM:
            return self.closure(name)
        return [n for n in self.steps if n in step.after]

    def restrict(self, names: Iterable[str]) -> Plan:
        """The plan for some recipes (or packages) and what they stand on.

        Raises:
            InputError: a name that is neither a recipe nor a package, or is absent on purpose.
        """
        owners = {o.name: s.name for s in self.steps.values() for o in s.outputs}
        wanted: set[str] = set()
        for name in names:
            room = name if name in self.steps else owners.get(name)
            if room is None and name in self.absent:
                raise InputError(
                    f"{name} is not built for {self.subdir}: {self.absent[name]}",
                    f"what is: ddlce plan --subdir {self.subdir}",
                )
            if room is None:
                raise InputError(f"{name}: no such recipe or package", "list them with: ddlce plan")
            wanted |= {room, *self.closure(room)}
        return replace(self, steps={n: s for n, s in self.steps.items() if n in wanted})

    @property
    def to_build(self) -> list[Step]:
        """The steps that are not reused."""
        return [step for step in self.steps.values() if not step.reuse]


def make_plan(settings: Settings, subdir: str = BUILD_PLATFORM) -> Plan:
    """Read all recipes and say what must be built.

    Raises:
        InputError: a recipe that does not parse, an unknown dependency, a cycle, a platform
            that no compiler is known for.
    """
    if subdir != BUILD_PLATFORM:
        from ddlce.cross import make_cross_plan

        return make_cross_plan(settings, subdir, make_plan(settings))
    recipes = load_recipes(settings, subdir)
    variants = load_variants(settings.recipes / VARIANTS)
    outputs = {
        name: [output for output, _ in render(recipe, variants, subdir)]
        for name, recipe in recipes.items()
    }
    outputs = with_run_exports({name: made for name, made in outputs.items() if made})
    owners = find_owners(recipes, outputs)
    refuse_unknown(recipes, outputs, owners.keys())
    graph = {n: {owners[d] for o in made for d in o.all_deps} for n, made in outputs.items()}
    store = Store(settings.store)
    steps: dict[str, Step] = {}
    for name in order_of(recipes, graph):
        below = {owners[d] for o in outputs[name] for d in o.build_deps | o.host_deps} - {name}
        parts = digests.digest_parts(
            recipes[name], outputs[name], {b: steps[b].digest for b in sorted(below)}
        )
        final = final_outputs(recipes[name], variants, subdir, digests.combine(parts))
        steps[name] = make_step(recipes[name], final, parts, graph[name] - {name}, store, subdir)
    return Plan(steps, subdir)


def final_outputs(
    recipe: Recipe, variants: Variants, subdir: str, digest: str
) -> tuple[Output, ...]:
    """What a recipe makes for a platform, with the digest in the build strings.

    A noarch output belongs to the build platform's plan alone: made by two, there would be two
    builds of one package for a solver to choose between.
    """
    rendered = render(recipe, variants, subdir, digest[: digests.SHORT])
    return tuple(o for o, _ in rendered if subdir in (BUILD_PLATFORM, o.subdir))


def make_step(
    recipe: Recipe,
    outputs: tuple[Output, ...],
    parts: digests.Parts,
    after: Iterable[str],
    store: Store,
    subdir: str,
) -> Step:
    """A step, marked for reuse where the store has its packages."""
    digest, record = digests.combine(parts), record_name(recipe.name, subdir)
    reuse = is_built(store, record, digest, outputs)
    return Step(
        recipe=recipe,
        outputs=outputs,
        digest=digest,
        parts=parts,
        after=frozenset(after),
        reuse=reuse,
        why=() if reuse else _why(store, record, parts),
        subdir=subdir,
    )


def record_name(recipe: str, subdir: str) -> str:
    """The name under which the store remembers a recipe's builds for a platform."""
    return recipe if subdir == BUILD_PLATFORM else f"{recipe}@{subdir}"


def is_built(store: Store, name: str, digest: str, outputs: tuple[Output, ...]) -> bool:
    """Whether the store holds these outputs of a recipe, made from the inputs of this digest."""
    if not outputs or not all(store.has(o.subdir, o.filename) for o in outputs):
        return False
    if all(digest[: digests.SHORT] in o.build for o in outputs):
        return True
    # A build string that conda-forge prescribes (`mpi 1.0 mpich`) says nothing of the inputs.
    record = store.last_record(name)
    return record is not None and record.digest == digest


def check_built(store: Store, plan: Plan) -> None:
    """Refuse a plan whose packages are not all in the store.

    Raises:
        WorkError: names the recipes.
    """
    steps = plan.steps.values()
    missing = [s.name for s in steps if not is_built(store, s.record, s.digest, s.outputs)]
    if missing:
        option = "" if plan.subdir == BUILD_PLATFORM else f" --subdir {plan.subdir}"
        raise WorkError(
            f"not built yet: {', '.join(missing)}", f"build them first: ddlce build{option}"
        )


def _why(store: Store, name: str, parts: digests.Parts) -> tuple[str, ...]:
    record = store.last_record(name)
    if record is None:
        return ("never built",)
    return tuple(digests.changes(record.parts, parts)) or ("not in the store",)


def with_run_exports(
    outputs: dict[str, list[Output]], others: Iterable[Output] = ()
) -> dict[str, list[Output]]:
    """The outputs with what their build and host packages add to them (run_exports).

    What a compiler exports, say libgcc, must be there in the host environment already.

    Args:
        outputs: recipe → its outputs.
        others: packages of other recipes that they may depend on.
    """
    known = {output.name: output for made in ([*others], *outputs.values()) for output in made}

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


def find_owners(recipes: dict[str, Recipe], outputs: dict[str, list[Output]]) -> dict[str, str]:
    """Package name → the one recipe that makes it.

    Raises:
        InputError: two recipes make one package.
    """
    owners: dict[str, str] = {}
    for name, made in outputs.items():
        for output in made:
            if owners.setdefault(output.name, name) != name:
                raise InputError(
                    f"{recipes[name].path}: makes the package {output.name!r}, "
                    f"and so does {recipes[owners[output.name]].path}",
                    "one package has one recipe; rename or delete one of them",
                )
    return owners


def refuse_unknown(
    recipes: dict[str, Recipe], outputs: dict[str, list[Output]], known: Collection[str]
) -> None:
    """Fail where an output depends on a package that no recipe makes.

    Raises:
        InputError: names the recipe, its package and the dependency.
    """
    for name, made in outputs.items():
        for output in made:
            for missing in sorted(output.all_deps - set(known)):
                raise InputError(
                    f"{recipes[name].path}: {output.name} depends on {missing!r}, "
                    "which no recipe makes",
                    "mend the name, or add a recipe for it (docs/packager-guide.md)",
                )


def order_of(recipes: dict[str, Recipe], graph: Mapping[str, Collection[str]]) -> list[str]:
    """The recipes of a graph, each after those that it needs.

    Raises:
        InputError: a cycle; names its recipes.
    """
    wanted = {name: sorted(set(graph[name]) - {name}) for name in sorted(graph)}
    try:
        return list(graphlib.TopologicalSorter(wanted).static_order())
    except graphlib.CycleError as error:
        names = error.args[1][::-1]
        raise InputError(
            "the recipes depend on each other in a cycle: " + " → ".join(names),
            f"take one of these dependencies out; start with {recipes[names[0]].path}",
        ) from error
