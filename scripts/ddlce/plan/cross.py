"""The plan for another platform than the one that builds.

Its steps come from two platforms. Compiled packages are built for the target by the same recipes,
rendered for it. What is noarch, and what runs while building (compilers, tools in `build:`), is
the build platform's: the same step, with the same digest, as in that platform's own plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ddlce.absent import ABSENT, load_absent
from ddlce.engine.render import Output
from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.plan.graph import find_owners, order_of, reached_from, with_run_exports
from ddlce.plan.model import Plan, Step
from ddlce.plan.steps import StepMaker
from ddlce.platforms import BUILD_PLATFORM, get_platform
from ddlce.recipes import load_recipes
from ddlce.recipes.sets import recipes_of_sets
from ddlce.settings import Settings

NOARCH = "noarch"


@dataclass
class Pool:
    """The packages of the target, while it is found out which of them can be had.

    Attributes:
        own: recipe → its outputs for the target.
        shared: noarch package → the native step that makes it.
        absent: recipe → the reason why the target does not have it.
    """

    own: dict[str, list[Output]]
    shared: dict[str, Step]
    absent: dict[str, str]

    @property
    def names(self) -> set[str]:
        """The packages that are there."""
        return {o.name for made in self.own.values() for o in made} | self.shared.keys()

    def lose(self, tools: set[str]) -> None:
        """Remove what needs an absent package, until nothing does."""
        while True:
            names = self.names
            lost = {recipe: self._missing(made, names, tools) for recipe, made in self.own.items()}
            # What is noarch was tested where it was built; here it only runs. A recipe may make
            # some for one platform each, as the activations of compilers: the others stay.
            idle = {p: _output(step, p).run_deps - names for p, step in self.shared.items()}
            if not any(lost.values()) and not any(idle.values()):
                return
            why = {recipe: missing for recipe, missing in lost.items() if missing}
            for package in [package for package, missing in idle.items() if missing]:
                why.setdefault(self.shared.pop(package).name, idle[package])
            self.own = {recipe: made for recipe, made in self.own.items() if not lost[recipe]}
            left = self.own.keys() | {step.name for step in self.shared.values()}
            for recipe in why.keys() - left:
                self.absent.setdefault(recipe, f"needs {', '.join(sorted(why[recipe]))}")

    @staticmethod
    def _missing(made: Iterable[Output], names: set[str], tools: set[str]) -> frozenset[str]:
        """What a recipe of the target needs and there is not."""
        needs = {d for o in made for d in o.host_deps | o.run_deps | o.test_deps} - names
        return frozenset(needs | {d for o in made for d in o.build_deps} - tools)


@dataclass(frozen=True)
class Ground:
    """What recipes for the target stand on: its own packages, and native ones.

    Of a recipe that both platforms build, a name without more means the target's step.

    Attributes:
        pool: the target's packages.
        owners: package → the recipe of the pool that makes it.
        native: the plan of the build platform.
    """

    pool: Pool
    owners: Mapping[str, str]
    native: Plan

    @cached_property
    def tools(self) -> dict[str, Step]:
        """Native package → the step that makes it."""
        return {o.name: step for step in self.native.steps.values() for o in step.outputs}

    @cached_property
    def _exporting(self) -> dict[str, Output]:
        return {output.name: output for output in exporting(self.native)}

    def below(self, made: Iterable[Output]) -> set[str]:
        """The recipes of all that can be installed beside a recipe's packages on the target."""

        def run_deps(package: str) -> Iterable[str]:
            owner = self.owners.get(package)
            outputs = self.pool.own[owner] if owner else self.tools[package].outputs
            return [d for o in outputs if o.name == package for d in o.run_deps]

        start = [d for o in made for d in o.host_deps | o.run_deps | o.test_deps]
        return {self._recipe(package) for package in reached_from(start, run_deps)}

    def helpers(self, made: Iterable[Output]) -> set[str]:
        """The native recipes of all that can be installed in the build environment."""
        start = [d for o in made for d in o.build_deps]
        packages = reached_from(start, lambda package: self._exporting[package].run_deps)
        return {self.tools[package].name for package in packages}

    def native_steps(
        self, below: Iterable[set[str]], helpers: Iterable[set[str]]
    ) -> dict[str, Step]:
        """The native steps that such recipes need, in order, under their names in the plan."""
        needed = {n for names in below for n in names - self.pool.own.keys()}
        needed |= {n for names in helpers for n in names}
        needed |= {step.name for step in self.pool.shared.values()}
        # All that must be there before they can be built and tested.
        needed |= {n for name in needed for n in self.native.closure(name)}
        return {
            self._key(step): replace(step, name=self._key(step), after=self.natives(step.after))
            for name, step in self.native.steps.items()
            if name in needed
        }

    def digests(
        self, name: str, outputs: Iterable[Output], steps: Mapping[str, Step]
    ) -> dict[str, str]:
        """The digests of all that a recipe is built on, by the names of their steps.

        A recipe's own earlier outputs are no dependency; the native build of it may be one.
        """
        outputs = list(outputs)
        direct = {self._recipe(d) for o in outputs for d in o.host_deps} - {name}
        known = {n: steps[key].digest for n in direct for key in self.targets({n})}
        used = [self.tools[d] for o in outputs for d in o.build_deps]
        known |= {self._key(step): step.digest for step in used}
        return dict(sorted(known.items()))

    def targets(self, names: Iterable[str]) -> frozenset[str]:
        """The steps for recipes that the target's packages come of."""
        return frozenset(
            n if n in self.pool.own else self._key(self.native.steps[n]) for n in names
        )

    def natives(self, names: Iterable[str]) -> frozenset[str]:
        """The steps for recipes that the build platform's packages come of."""
        return frozenset(self._key(self.native.steps[n]) for n in names)

    def _recipe(self, package: str) -> str:
        return self.owners.get(package) or self.pool.shared[package].name

    def _key(self, step: Step) -> str:
        """The name of a native step in the target's plan."""
        if _is_noarch(step) and step.name not in self.pool.own:
            return step.name
        return f"{step.name}@{BUILD_PLATFORM}"


def make_cross_plan(settings: Settings, subdir: str, native: Plan) -> Plan:
    """The plan of another platform.

    Args:
        subdir: the target, e.g. "linux-ppc64le".

    Raises:
        InputError: as `make_plan`; also a wrong table of what is absent.
    """
    return plan_and_pool(settings, subdir, native)[0]


def plan_and_pool(settings: Settings, subdir: str, native: Plan) -> tuple[Plan, Pool]:
    """The plan of another platform, and the packages that it is for.

    Args and raises as `make_cross_plan`.
    """
    get_platform(subdir)
    recipes = load_recipes(settings, subdir)
    tools = {o.name for step in native.steps.values() for o in step.outputs}
    pool = _pool(settings, subdir, native, recipes)
    pool.own = with_run_exports(pool.own, exporting(native))
    pool.lose(tools)
    plan = Plan({}, subdir, dict(sorted(pool.absent.items())))
    owners = find_owners(recipes, pool.own)
    return add_steps(settings, plan, pool, recipes, owners, native), pool


def exporting(native: Plan) -> list[Output]:
    """The native packages, with their run exports applied."""
    built = with_run_exports({s.name: [*s.outputs] for s in native.steps.values()})
    return [output for made in built.values() for output in made]


def add_steps(
    settings: Settings,
    plan: Plan,
    pool: Pool,
    recipes: dict[str, Recipe],
    owners: Mapping[str, str],
    native: Plan,
) -> Plan:
    """A target's plan with further recipes, and the native steps that they need.

    Args:
        pool: the target's packages, those of the plan and those to be added.
        recipes: those of the pool that may be added; what the plan has is not.
        owners: package → the recipe of the pool that makes it.
        native: the plan of the build platform.
    """
    ground = Ground(pool, owners, native)
    new = {n: made for n, made in pool.own.items() if n in recipes and n not in plan.steps}
    below = {name: ground.below(made) for name, made in new.items()}
    helpers = {name: ground.helpers(made) for name, made in new.items()}
    steps = plan.steps | ground.native_steps([*below.values()], [*helpers.values()])
    maker = StepMaker(settings, plan.subdir)
    for name in order_of(recipes, {n: needed & new.keys() for n, needed in below.items()}):
        after = ground.targets(below[name] - {name}) | ground.natives(helpers[name])
        digests = ground.digests(name, new[name], steps)
        steps[name] = maker.make(recipes[name], new[name], digests, after)
    return replace(plan, steps=steps)


def known_absent(settings: Settings, section: str, recipes: Collection[str]) -> dict[str, str]:
    """What a section of the table of absences says of these recipes.

    Raises:
        InputError: a wrong table, or a line about another recipe.
    """
    path = settings.recipes / ABSENT
    table = load_absent(path, section)
    if unknown := sorted(table.keys() - set(recipes)):
        raise InputError(
            f"{path}: {section}: {unknown[0]!r} is no recipe", "mend the name, or delete the line"
        )
    return table


def _pool(settings: Settings, subdir: str, native: Plan, recipes: dict[str, Recipe]) -> Pool:
    of_sets = recipes_of_sets(settings)
    table = known_absent(settings, subdir, {*recipes, *native.steps, *of_sets})
    noarch = {name for name, step in native.steps.items() if _is_noarch(step)}
    own = StepMaker(settings, subdir).outputs(
        {n: r for n, r in recipes.items() if n not in table and n not in noarch}
    )
    ours = {o.name for made in own.values() for o in made}
    shared = {
        output.name: step
        for step in native.steps.values()
        if step.name not in table
        for output in step.outputs
        if output.subdir == NOARCH and output.name not in ours
    }
    absent = {name: why for name, why in table.items() if name in of_sets}
    for name, step in native.steps.items():
        if name not in own and not {o.name for o in step.outputs} <= ours | shared.keys():
            absent[name] = table.get(name) or (
                f"there is no file of it for {subdir}"
                if name not in recipes
                else f"its recipe leaves {subdir} out"
            )
    return Pool(own, shared, absent)


def _is_noarch(step: Step) -> bool:
    return all(output.subdir == NOARCH for output in step.outputs)


def _output(step: Step, package: str) -> Output:
    return next(output for output in step.outputs if output.name == package)
