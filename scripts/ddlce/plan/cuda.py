"""The plan of a CUDA variant: the build platform's plan, and the packages for CUDA beside it.

A package for CUDA stands on the variant's build of each package that there is for CUDA, and on the
one build that there is of all others.
"""

from __future__ import annotations

from dataclasses import replace

from ddlce import digest as digests
from ddlce.engine.render import render
from ddlce.engine.variants import VARIANTS, load_variants
from ddlce.plan.graph import find_owners, order_of, refuse_unknown, with_run_exports
from ddlce.plan.model import Plan
from ddlce.plan.steps import final_outputs, make_step
from ddlce.recipes import Recipe, load_cuda_recipes
from ddlce.settings import Settings
from ddlce.store import Store


def make_cuda_plan(settings: Settings, cuda: str, native: Plan) -> Plan:
    """The steps of the native plan, and those of a CUDA variant.

    Args:
        settings: the folders.
        cuda: the version of CUDA, "13.0".
        native: the plan of the build platform; steps of another CUDA variant in it do not count.

    Raises:
        InputError: as `make_plan`; also where there is no such variant.
    """
    native = replace(native, steps={n: s for n, s in native.steps.items() if not s.recipe.cuda})
    return add_cuda_steps(settings, load_cuda_recipes(settings, cuda), native)


def add_cuda_steps(settings: Settings, recipes: dict[str, Recipe], native: Plan) -> Plan:
    """The native plan with recipes of a CUDA variant.

    Args:
        settings: the folders.
        recipes: from `load_cuda_recipes`, or some of them.
        native: the plan of the build platform, with none of a CUDA variant.

    Raises:
        InputError: a package that no recipe makes, or a cycle.
    """
    variants, store = load_variants(settings.recipes / VARIANTS), Store(settings.store)
    rendered = {n: [o for o, _ in render(r, variants, native.subdir)] for n, r in recipes.items()}
    others = [output for step in native.steps.values() for output in step.outputs]
    outputs = with_run_exports({n: made for n, made in rendered.items() if made}, others)
    native_owners = {o.name: s.name for s in native.steps.values() for o in s.outputs}
    owners = {**native_owners, **find_owners(recipes, outputs)}
    refuse_unknown(recipes, outputs, owners.keys())
    graph = {n: {owners[d] for o in made for d in o.all_deps} - {n} for n, made in outputs.items()}
    steps = dict(native.steps)
    for name in order_of(recipes, {n: found & outputs.keys() for n, found in graph.items()}):
        below = {owners[d] for o in outputs[name] for d in o.build_deps | o.host_deps} - {name}
        known = {b: steps[b].digest for b in sorted(below)}
        parts = digests.digest_parts(recipes[name], outputs[name], known)
        final = final_outputs(recipes[name], variants, native.subdir, digests.combine(parts))
        steps[name] = make_step(recipes[name], final, parts, graph[name], store, native.subdir)
    return replace(native, steps=steps)
