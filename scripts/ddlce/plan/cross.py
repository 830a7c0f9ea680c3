"""The plan for another platform than the one that builds.

Its steps come from two platforms. Compiled packages are built for the target by the same recipes,
rendered for it. What is noarch, and what runs while building (compilers, tools in `build:`), is
the build platform's: the same step, with the same digest, as in that platform's own plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ddlce import digest as digests
from ddlce.absent import ABSENT, load_absent
from ddlce.engine.render import Output, render
from ddlce.engine.variants import VARIANTS, load_variants
from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.plan.graph import find_owners, order_of, with_run_exports
from ddlce.plan.model import Plan, Step
from ddlce.plan.steps import final_outputs, make_step
from ddlce.platforms import BUILD_PLATFORM, get_platform
from ddlce.recipes import load_recipes
from ddlce.recipes.sets import set_rooms
from ddlce.settings import Settings
from ddlce.store import Store

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
        """Take out what needs a package that is not there, until nothing does."""
        while lost := self._lost(tools):
            for recipe, missing in lost.items():
                self.absent.setdefault(recipe, f"needs {', '.join(missing)}")
                self.own.pop(recipe, None)
                self.shared = {p: s for p, s in self.shared.items() if s.name != recipe}

    def _lost(self, tools: set[str]) -> dict[str, list[str]]:
        names = self.names
        missing = {
            recipe: {d for o in made for d in o.host_deps | o.run_deps | o.test_deps} - names
            | {d for o in made for d in o.build_deps} - tools
            for recipe, made in self.own.items()
        }
        for package, step in self.shared.items():
            # It was tested where it was built; here it only runs.
            missing.setdefault(step.name, set()).update(_output(step, package).run_deps - names)
        return {recipe: sorted(found) for recipe, found in missing.items() if found}


def make_cross_plan(settings: Settings, subdir: str, native: Plan) -> Plan:
    """The plan of another platform.

    Args:
        subdir: the target, e.g. "linux-ppc64le".
        native: the plan of the build platform.

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
    """The native packages, with what others add to them."""
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
        plan: what is planned already.
        pool: the target's packages, those of the plan and those to be added.
        recipes: those of the pool that may be added; what the plan has is not.
        owners: package → the recipe of the pool that makes it.
        native: the plan of the build platform.
    """
    subdir, own = plan.subdir, pool.own
    tools = {o.name: step for step in native.steps.values() for o in step.outputs}
    new = {n: made for n, made in own.items() if n in recipes and n not in plan.steps}
    # Of a recipe that both platforms build, `below` means the target's, `helpers` the native one.
    below = {name: _below(made, owners, pool, tools) for name, made in new.items()}
    helpers = {name: _tools(made, exporting(native), tools) for name, made in new.items()}
    keys = {s.name: _key(s, own) for s in native.steps.values()}
    needed = {n for found in below.values() for n in found - own.keys()}
    needed |= {n for found in helpers.values() for n in found}
    needed = _with_closures(native, needed | {s.name for s in pool.shared.values()})
    steps = {keys[n]: _renamed(native.steps[n], keys) for n in native.steps if n in needed}
    steps = plan.steps | steps
    graph = {name: found & new.keys() for name, found in below.items()}
    variants, store = load_variants(settings.recipes / VARIANTS, subdir), Store(settings.store)
    for name in order_of(recipes, graph):
        direct = {owners.get(d) or pool.shared[d].name for o in own[name] for d in o.host_deps}
        # A recipe's own earlier outputs are no dependency; the native build of it may be one.
        known = {n: steps[n if n in own else keys[n]].digest for n in direct - {name}}
        used = {tools[d].name for o in own[name] for d in o.build_deps}
        known |= {keys[n]: native.steps[n].digest for n in used}
        parts = digests.digest_parts(recipes[name], own[name], dict(sorted(known.items())), subdir)
        final = final_outputs(recipes[name], variants, subdir, digests.combine(parts))
        after = {n if n in own else keys[n] for n in below[name] - {name}}
        after |= {keys[n] for n in helpers[name]}
        steps[name] = make_step(recipes[name], final, parts, after, store, subdir)
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
    of_sets = set_rooms(settings)
    table = known_absent(settings, subdir, {*recipes, *native.steps, *of_sets})
    variants = load_variants(settings.recipes / VARIANTS, subdir)
    own: dict[str, list[Output]] = {}
    for name, recipe in recipes.items():
        there = native.steps.get(name)
        if name in table or (there and _is_noarch(there)):
            continue
        made = [o for o, _ in render(recipe, variants, subdir) if o.subdir == subdir]
        if made:
            own[name] = made
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


def _below(
    made: Iterable[Output], owners: Mapping[str, str], pool: Pool, tools: Mapping[str, Step]
) -> set[str]:
    """The recipes of all that can be installed beside a recipe's packages on the target."""
    found: set[str] = set()
    todo = [d for o in made for d in o.host_deps | o.run_deps | o.test_deps]
    seen: set[str] = set()
    while todo:
        package = todo.pop()
        if package in seen:
            continue
        seen.add(package)
        if package in owners:
            found.add(owners[package])
            outputs = [o for o in pool.own[owners[package]] if o.name == package]
        else:
            found.add(pool.shared[package].name)
            outputs = [_output(tools[package], package)]
        todo += [d for o in outputs for d in o.run_deps]
    return found


def _tools(made: Iterable[Output], built: Iterable[Output], tools: Mapping[str, Step]) -> set[str]:
    """The native recipes of all that can be installed in the build environment."""
    known = {output.name: output for output in built}
    todo, seen = [d for o in made for d in o.build_deps], set[str]()
    while todo:
        package = todo.pop()
        if package not in seen:
            seen.add(package)
            todo += known[package].run_deps
    return {tools[package].name for package in seen}


def _with_closures(native: Plan, names: Iterable[str]) -> set[str]:
    """Native recipes with all that must be there before they can be built and tested."""
    return {n for name in names for n in (name, *native.closure(name))}


def _key(step: Step, own: Mapping[str, object]) -> str:
    """The name of a native step in the target's plan."""
    if _is_noarch(step) and step.name not in own:
        return step.name
    return f"{step.name}@{BUILD_PLATFORM}"


def _renamed(step: Step, keys: Mapping[str, str]) -> Step:
    return replace(step, name=keys[step.name], after=frozenset(keys[n] for n in step.after))


def _is_noarch(step: Step) -> bool:
    return all(output.subdir == NOARCH for output in step.outputs)


def _output(step: Step, package: str) -> Output:
    return next(output for output in step.outputs if output.name == package)
