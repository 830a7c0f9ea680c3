"""Steps beside a plan: packages that stand on those of a plan, and on which none of it stands."""

from __future__ import annotations

from dataclasses import replace

from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.plan.graph import find_owners, order_of, refuse_unknown, with_run_exports
from ddlce.plan.model import Plan
from ddlce.plan.steps import StepMaker
from ddlce.platforms import BUILD_PLATFORM
from ddlce.recipes import load_cuda_recipes
from ddlce.recipes.sets import load_set_recipes, set_cuda, sets_below
from ddlce.settings import Settings


def without_cuda(plan: Plan) -> Plan:
    """The plan without the steps of any CUDA variant."""
    return replace(plan, steps={n: s for n, s in plan.steps.items() if not s.recipe.cuda})


def add_steps_beside(settings: Settings, recipes: dict[str, Recipe], native: Plan) -> Plan:
    """The native plan with recipes that nothing in it stands on; all of it, from an empty one.

    Args:
        recipes: those of a CUDA variant or of a set, or some of them.
        native: the plan of the build platform, with none of a CUDA variant.

    Raises:
        InputError: a package that no recipe makes, or a cycle.
    """
    maker = StepMaker(settings, native.subdir)
    others = [output for step in native.steps.values() for output in step.outputs]
    outputs = with_run_exports(maker.outputs(recipes), others)
    owners = {o.name: s.name for s in native.steps.values() for o in s.outputs}
    owners |= find_owners(recipes, outputs)
    refuse_unknown(recipes, outputs, owners.keys())
    graph = {n: {owners[d] for o in made for d in o.all_deps} - {n} for n, made in outputs.items()}
    steps = dict(native.steps)
    for name in order_of(recipes, {n: after & outputs.keys() for n, after in graph.items()}):
        built_on = {owners[d] for o in outputs[name] for d in o.build_deps | o.host_deps} - {name}
        below = {recipe: steps[recipe].digest for recipe in sorted(built_on)}
        steps[name] = maker.make(recipes[name], outputs[name], below, graph[name])
    return replace(native, steps=steps)


def make_cuda_plan(settings: Settings, cuda: str, native: Plan) -> Plan:
    """The steps of the native plan, and those of a CUDA variant.

    A package for CUDA stands on the variant's build of each package that there is for CUDA, and on
    the one build that there is of all others.

    Args:
        cuda: the version of CUDA, "13.0".
        native: the plan of the build platform; steps of another CUDA variant in it do not count.

    Raises:
        InputError: as `make_plan`; also where there is no such variant.
    """
    return add_steps_beside(settings, load_cuda_recipes(settings, cuda), without_cuda(native))


def add_set(settings: Settings, name: str, plan: Plan) -> Plan:
    """The plan with the packages of a set, and of the sets that it stands on.

    Args:
        plan: the plan of the build platform; steps of CUDA variants in it stay.

    Raises:
        InputError: no such set, another platform, or as `make_plan`.
    """
    if plan.subdir != BUILD_PLATFORM:
        raise InputError(
            f"the set {name} is built on {BUILD_PLATFORM}, not for {plan.subdir}",
            f"leave --platform out: its noarch packages are there for {plan.subdir}, too",
        )
    for each in sets_below(settings, name):
        plan = add_own_steps(settings, each, plan)
    return plan


def add_own_steps(settings: Settings, name: str, plan: Plan) -> Plan:
    """The plan with the packages of a set; those that it stands on are in it already."""
    recipes, cuda = load_set_recipes(settings, name), set_cuda(settings, name)
    below = make_cuda_plan(settings, cuda, plan) if cuda else without_cuda(plan)
    found = add_steps_beside(settings, recipes, below).steps
    return replace(plan, steps={**found, **plan.steps, **{n: found[n] for n in recipes}})
