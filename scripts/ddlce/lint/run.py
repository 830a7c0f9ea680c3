"""Running the rules over recipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlce import yamltext
from ddlce.engine.variants import CROSS_TARGETS, VARIANTS
from ddlce.errors import InputError

# Imported for their rules, which they register.
from ddlce.lint import rules_about, rules_build, rules_requirements  # noqa: F401
from ddlce.lint.linted import LintedRecipe, Tree, as_dict
from ddlce.lint.registries import registry_hosts
from ddlce.lint.rule import RULES, Level
from ddlce.model.recipe import Recipe
from ddlce.model.source import SourcesLock
from ddlce.platforms import PLATFORMS
from ddlce.recipes import cuda_variants, load_cuda_recipes, load_recipes, recipe_files
from ddlce.recipes.sets import load_set_recipes, set_names
from ddlce.settings import Settings
from ddlce.userpath import home


@dataclass(frozen=True)
class Violation:
    """One problem of one recipe.

    Attributes:
        rule: the rule's id.
        name: the rule's name.
        level: `error` or `hint`.
        recipe: the recipe's name.
        file: relative to the tree where it lies in it.
        line: or None where the problem is about the whole file.
        message, hint: what is wrong, and what to do.
    """

    rule: str
    name: str
    level: Level
    recipe: str
    file: str
    line: int | None
    message: str
    hint: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.level} {self.rule} {self.name}: {self.message}\n    {self.hint}"


def lint(settings: Settings, names: Sequence[str] = ()) -> list[Violation]:
    """Check the recipes of the tree, or those named, against every rule.

    Raises:
        InputError: an unknown recipe, or a recipe that is not YAML at all.
    """
    recipes = _recipes(settings)
    known = {recipe.name for recipe in recipes}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            f"no recipe is called {', '.join(unknown)}",
            "see the folders under recipes/, and recipes/wheels/wheels.yaml",
        )
    tree = read_tree(settings)
    found: list[Violation] = []
    for recipe in recipes:
        if not names or recipe.name in names:
            found += lint_recipe(linted(recipe, tree), settings.tree)
    return found


def _recipes(settings: Settings) -> list[Recipe]:
    """The recipes of all platforms; one that two platforms share is there once."""
    recipes: list[Recipe] = []
    for subdir in PLATFORMS:
        recipes += [r for r in load_recipes(settings, subdir).values() if r not in recipes]
    for subdir, cuda in cuda_variants(settings):
        recipes += [r for r in load_cuda_recipes(settings, cuda, subdir).values() if r.generated]
    for name in set_names(settings):
        recipes += load_set_recipes(settings, name).values()
    return recipes


def lint_recipe(recipe: LintedRecipe, top: Path) -> list[Violation]:
    """The findings on one recipe, in the order of file and line.

    A recipe may except itself from a rule, with the reason: extra: {skip-lints: {D007: why}}.
    """
    skipped = as_dict(as_dict(recipe.data.get("extra")).get("skip-lints"))
    violations = []
    for rule in RULES.values():
        if str(skipped.get(rule.id) or "").strip():
            continue
        for problem in rule.check(recipe):
            path = problem.file or recipe.path
            file = str(path.relative_to(top) if path.is_relative_to(top) else path)
            violations.append(
                Violation(
                    rule.id,
                    rule.name,
                    rule.level,
                    recipe.name,
                    file,
                    problem.line,
                    problem.message,
                    problem.hint,
                )
            )
    return sorted(violations, key=lambda f: (f.file, f.line or 0, f.rule))


def linted(recipe: Recipe, tree: Tree) -> LintedRecipe:
    """A recipe as rules see it; a generated one has no text of its own."""
    text = "" if recipe.generated else recipe.path.read_text()
    files = () if recipe.generated else tuple(recipe_files(recipe))
    return LintedRecipe(recipe.name, recipe.path, recipe.folder, recipe.data, text, files, tree)


def read_tree(settings: Settings) -> Tree:
    """What the rules compare with: the lock, the variants, this machine's registries."""
    lock = settings.sources_lock
    variants = settings.recipes / VARIANTS
    if not variants.is_file():
        raise InputError(f"{variants}: missing", "the variants of the recipes stand in it")
    keys = yamltext.load(variants.read_text())
    if not isinstance(keys, dict):
        raise InputError(f"{variants}: it holds no variants", "see docs/packager-guide.md")
    places = (settings.tree, settings.cache, home())
    return Tree(
        locked=frozenset(s.sha256 for s in SourcesLock.load(lock).sources)
        if lock.exists()
        else frozenset(),
        variants=frozenset({*keys, CROSS_TARGETS}),
        registries=registry_hosts(),
        places=tuple(str(place) for place in places if place != Path("/")),
    )
