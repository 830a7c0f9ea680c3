"""Rules about how a package is built: build strings, linking, scripts, files of the recipe."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddlce.lint.linted import LintedRecipe, OutputSection, as_dict
from ddlce.lint.rule import Problem, each_output, rule
from ddlce.lint.shell import and_lists, exits_on_error
from ddlce.model.recipe import flatten

#: A recipe's folder is packed into the package (info/recipe): what is larger is a source.
LARGEST = 512 * 1024
BINARIES = re.compile(r"\.(whl|conda|so(\.\d+)*|a|o|gz|bz2|xz|zst|zip|jar|pyc)$")


@rule("D003", "digest-in-build-string")
@each_output
def digest_in_build_string(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """`build.string` carries the content digest: changed content gets another file name."""
    string = str(output.build.get("string", ""))
    if not re.search(r"\$\{\{\s*digest\s*\}\}", string):
        yield Problem(
            f"build.string {string or '(none)'!r} has no digest",
            "write: string: h${{ digest }}_0",
            recipe.line(*output.where, "build", "string"),
        )


@rule("D004", "overlinking-error")
@each_output
def overlinking_error(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """A compiled package fails to build when it links to what it does not depend on.

    The machine's own libraries leak into a build, and a package that needs them would run on
    this machine only.
    """
    linking = as_dict(output.build.get("dynamic_linking"))
    if output.compiled and linking.get("overlinking_behavior") != "error":
        yield Problem(
            "compiled, without overlinking_behavior: error",
            "add: build: {dynamic_linking: {overlinking_behavior: error}}",
            recipe.line(*output.where, "build"),
        )


@rule("D005", "script-exits-on-error")
def script_exits_on_error(recipe: LintedRecipe) -> Iterator[Problem]:
    """A build script begins with `set -e`: the first failing command ends the build."""
    for path in recipe.scripts:
        if not exits_on_error(path.read_text()):
            yield Problem(
                f"{path.name} does not begin with 'set -e'",
                "begin it with: set -euo pipefail",
                1,
                path,
            )


@rule("D006", "no-hidden-failure")
def no_hidden_failure(recipe: LintedRecipe) -> Iterator[Problem]:
    """No `a && b` as a command of its own: `set -e` does not see that `a` failed.

    Conditions are not meant: `if a && b`, `[[ … ]] && b`, `a && b || c`.
    """
    for path in recipe.scripts:
        for line, text in and_lists(path.read_text()):
            yield Problem(
                f"{path.name}: '{text}' goes on when the first command fails",
                "write the commands on lines of their own",
                line,
                path,
            )
    for output in recipe.outputs:
        script = output.build.get("script")
        if isinstance(script, dict):
            script = script.get("content")
        for item in flatten(script):
            for _, text in and_lists(str(item)):
                yield Problem(
                    f"{output.name}: build.script: '{text}' goes on when the first command fails",
                    "write the commands as items of their own",
                    recipe.line(*output.where, "build", "script"),
                )


@rule("D007", "no-large-files")
def no_large_files(recipe: LintedRecipe) -> Iterator[Problem]:
    """No archives, binaries or large files in a recipe's folder: they belong into sources.lock."""
    for path in recipe.files:
        size = path.stat().st_size
        if BINARIES.search(path.name) or size > LARGEST:
            yield Problem(
                f"{_short(recipe, path)} ({size // 1024} KiB) does not belong into a recipe",
                "lock it as a source: ddlce sources add",
                None,
                path,
            )


@rule("D008", "no-registry-address")
def no_registry_address(recipe: LintedRecipe) -> Iterator[Problem]:
    """No file of a recipe names a package registry: clients find theirs by their own settings.

    The names are read from this machine's pip, apt and npm when the rule runs.
    """
    for path, line, host in _mentions(recipe, sorted(recipe.tree.registries)):
        yield Problem(
            f"{_short(recipe, path)} names the package registry {host}",
            "name client and package: pypi://NAME==VERSION/FILE, debian-source://NAME/FILE",
            line,
            path,
        )


@rule("D009", "no-build-paths")
def no_build_paths(recipe: LintedRecipe) -> Iterator[Problem]:
    """No file of a recipe names a folder of the machine that it was written on.

    The homes in a `.template` are those of the machines that its text is for.
    """
    for path, line, place in _mentions(recipe, recipe.tree.places, also=r"/home/\w+"):
        if path.suffix == ".template" and place not in recipe.tree.places:
            continue
        yield Problem(
            f"{_short(recipe, path)} names {place}",
            "use $PREFIX, $SRC_DIR or $RECIPE_DIR",
            line,
            path,
        )


def _mentions(
    recipe: LintedRecipe, names: Sequence[str], also: str | None = None
) -> Iterator[tuple[Path, int, str]]:
    """(file, line, name) of each of `names`, as a whole name, in the text files of the recipe."""
    patterns = [re.escape(name) for name in names] + ([also] if also else [])
    if not patterns:
        return
    pattern = re.compile(rf"(?<![\w$}}.-])({'|'.join(patterns)})(?![\w-])")
    for path in recipe.files:
        data = path.read_bytes()
        if b"\0" in data:
            continue
        text = data.decode(errors="replace")
        for match in pattern.finditer(text):
            yield path, text.count("\n", 0, match.start()) + 1, match[1]


def _short(recipe: LintedRecipe, path: Path) -> str:
    return str(path.relative_to(recipe.folder) if path.is_relative_to(recipe.folder) else path)
