"""The plan: which recipes are to be built, which are reused, in which order, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ddlce import digest as digests
from ddlce.engine.render import Output
from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.plan.graph import reached_from
from ddlce.platforms import BUILD_PLATFORM


@dataclass(frozen=True)
class Step:
    """One recipe in the plan.

    Attributes:
        recipe: what it builds.
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
    def record_name(self) -> str:
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
        names = reached_from(self.steps[name].after, lambda below: self.steps[below].after)
        return [n for n in self.steps if n in names]

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
            recipe = name if name in self.steps else owners.get(name)
            if recipe is None and name in self.absent:
                raise InputError(
                    f"{name} is not built for {self.subdir}: {self.absent[name]}",
                    f"what is: ddlce plan --platform {self.subdir}",
                )
            if recipe is None:
                raise InputError(f"{name}: no such recipe or package", "list them with: ddlce plan")
            wanted |= {recipe, *self.closure(recipe)}
        return replace(self, steps={n: s for n, s in self.steps.items() if n in wanted})

    @property
    def to_build(self) -> list[Step]:
        """The steps that are not reused."""
        return [step for step in self.steps.values() if not step.reuse]


def record_name(recipe: str, subdir: str) -> str:
    """The name under which the store remembers a recipe's builds for a platform."""
    return recipe if subdir == BUILD_PLATFORM else f"{recipe}@{subdir}"
