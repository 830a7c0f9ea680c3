"""Who needs whom: packages and the recipes that make them."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from ddlce.engine.render import Output
from ddlce.errors import InputError
from ddlce.model.recipe import Recipe


def reached_from(start: Iterable[str], needs: Callable[[str], Iterable[str]]) -> set[str]:
    """The names that one begins with, and all that they need."""
    reached: set[str] = set()
    todo = [*start]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += needs(name)
    return reached


def with_run_exports(
    outputs: dict[str, list[Output]], others: Iterable[Output] = ()
) -> dict[str, list[Output]]:
    """The outputs with what their build and host packages add to them (run_exports).

    What a compiler exports, say libgcc, must be there in the host environment already. An output
    may say what it does not take (`ignore_run_exports`).

    Args:
        outputs: recipe → its outputs.
        others: packages of other recipes that they may depend on.
    """
    known = {
        output.name: output for of_recipe in ([*others], *outputs.values()) for output in of_recipe
    }

    def extended(output: Output) -> Output:
        build = [known[n] for n in output.build_deps - output.ignored_from if n in known]
        host = [known[n] for n in output.host_deps - output.ignored_from if n in known]
        strong = frozenset().union(*(o.strong_exports for o in build))
        weak = frozenset().union(*(o.strong_exports | o.weak_exports for o in host))
        unwanted = output.ignored_exports | {output.name}
        return replace(
            output,
            host_deps=output.host_deps | strong - unwanted,
            run_deps=output.run_deps | (strong | weak) - unwanted,
        )

    return {name: [extended(output) for output in of_recipe] for name, of_recipe in outputs.items()}


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
