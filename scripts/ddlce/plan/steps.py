"""Steps of a plan: build strings with the digest, and whether the store has the packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ddlce import digest as digests
from ddlce.engine.render import NO_DIGEST, Output, render
from ddlce.engine.variants import VARIANTS, load_variants
from ddlce.errors import InputError, WorkError
from ddlce.model.recipe import Recipe
from ddlce.plan.model import Plan, Step, record_name
from ddlce.platforms import BUILD_PLATFORM
from ddlce.settings import Settings
from ddlce.store import Store


class StepMaker:
    """Makes the steps of a plan for one platform.

    Attributes:
        subdir: the platform.
    """

    def __init__(self, settings: Settings, subdir: str = BUILD_PLATFORM) -> None:
        self.subdir = subdir
        self._variants = load_variants(settings.recipes / VARIANTS, subdir)
        self._store = Store(settings.store)

    def outputs(self, recipes: Mapping[str, Recipe]) -> dict[str, list[Output]]:
        """Recipe → its outputs without a digest; only recipes that have any for the platform.

        A noarch output belongs to the build platform's plan alone: made by two, there would be two
        builds of one package for a solver to choose between.
        """
        rendered = {name: self._render(recipe) for name, recipe in recipes.items()}
        return {name: [*made] for name, made in rendered.items() if made}

    def make(
        self,
        recipe: Recipe,
        outputs: list[Output],
        below: Mapping[str, str],
        after: Iterable[str],
    ) -> Step:
        """A step, marked for reuse where the store has its packages.

        Args:
            outputs: the recipe's, without a digest.
            below: what it is built on → the digest of that.
            after: the steps that must be done before.

        Raises:
            InputError: other bytes would get a name that a package had before.
        """
        parts = digests.digest_parts(recipe, outputs, below, self.subdir)
        digest = digests.combine(parts)
        final = self._render(recipe, digest[: digests.SHORT])
        for output in final:
            if digest[: digests.SHORT] not in output.build:
                raise InputError(
                    f"{recipe.path}: {output.name} has the build string {output.build!r}, in which "
                    "there is no digest",
                    "write: string: h${{ digest }}_0, so that another build gets another file name",
                )
        reuse = is_built(self._store, digest, final)
        record = record_name(recipe.name, self.subdir)
        return Step(
            recipe=recipe,
            outputs=final,
            digest=digest,
            parts=parts,
            after=frozenset(after),
            reuse=reuse,
            why=() if reuse else _why(self._store, record, parts),
            subdir=self.subdir,
        )

    def _render(self, recipe: Recipe, digest: str = NO_DIGEST) -> tuple[Output, ...]:
        rendered = render(recipe, self._variants, self.subdir, digest)
        return tuple(o for o, _ in rendered if self.subdir in (BUILD_PLATFORM, o.subdir))


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
    record = store.last_build(name)
    if record is None:
        return ("never built",)
    return tuple(digests.changes(record.parts, parts)) or ("not in the store",)
