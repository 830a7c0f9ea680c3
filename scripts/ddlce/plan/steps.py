"""Steps of a plan: build strings with the digest, and whether the store has the packages."""

from __future__ import annotations

from collections.abc import Iterable

from ddlce import digest as digests
from ddlce.engine.render import Output, render
from ddlce.engine.variants import Variants
from ddlce.errors import InputError, WorkError
from ddlce.model.recipe import Recipe
from ddlce.plan.model import Plan, Step, record_name
from ddlce.platforms import BUILD_PLATFORM
from ddlce.store import Store


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
    """A step, marked for reuse where the store has its packages.

    Raises:
        InputError: other bytes would get a name that a package had before.
    """
    digest, record = digests.combine(parts), record_name(recipe.name, subdir)
    for output in outputs:
        if digest[: digests.SHORT] not in output.build:
            raise InputError(
                f"{recipe.path}: {output.name} has the build string {output.build!r}, in which "
                "there is no digest",
                "write: string: h${{ digest }}_0, so that another build gets another file name",
            )
    reuse = is_built(store, digest, outputs)
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


def is_built(store: Store, digest: str, outputs: tuple[Output, ...]) -> bool:
    """Whether the store holds these outputs of a recipe, made from the inputs of this digest."""
    return bool(outputs) and all(
        digest[: digests.SHORT] in o.build and store.has(o.subdir, o.filename) for o in outputs
    )


def check_built(store: Store, plan: Plan) -> None:
    """Refuse a plan whose packages are not all in the store.

    Raises:
        WorkError: names the recipes.
    """
    steps = plan.steps.values()
    missing = [s.name for s in steps if not is_built(store, s.digest, s.outputs)]
    if missing:
        option = "" if plan.subdir == BUILD_PLATFORM else f" --platform {plan.subdir}"
        raise WorkError(
            f"not built yet: {', '.join(missing)}", f"build them first: ddlce build{option}"
        )


def _why(store: Store, name: str, parts: digests.Parts) -> tuple[str, ...]:
    record = store.last_record(name)
    if record is None:
        return ("never built",)
    return tuple(digests.changes(record.parts, parts)) or ("not in the store",)
