"""Rules about what a recipe is and says of its package: schema, name, version, licence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddlce.engine.parse import recipe_problem, version_problem
from ddlce.licences import licensing
from ddlce.lint.linted import LintedRecipe, OutputSection, as_dict
from ddlce.lint.rule import Problem, each_output, rule
from ddlce.model.recipe import flatten

NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*")

SINGLE_ORDER = ("context", "package", "source", "build", "requirements", "tests", "about", "extra")
MULTI_ORDER = ("context", "recipe", "source", "build", "outputs", "about", "extra")


@rule("R001", "recipe-schema", smithy="R-000 R-018 R-020 R-036")
def recipe_schema(recipe: LintedRecipe) -> Iterator[Problem]:
    """The recipe parses: valid YAML, and only the fields and values of a v1 recipe.

    rattler-build itself is asked, so what this rule accepts, the build accepts.
    """
    if not recipe.text:
        return
    message = recipe_problem(recipe.path)
    if message is None:
        return
    place = re.search(r"YAML: (\d+):\d+", message)
    key = re.search(r"unknown field '([^']+)'", message) or re.search(r"for '([^']+)'", message)
    line = int(place[1]) if place else None
    if key and not line:
        line = recipe.line_of_key(key[1].rpartition(".")[2])
    first = message.splitlines()[0].removesuffix(", because:")
    yield Problem(first, "see the recipe format: https://rattler.build/latest/", line)


@rule("R002", "section-order", smithy="R-001")
def section_order(recipe: LintedRecipe) -> Iterator[Problem]:
    """The top-level sections stand in conda-forge's order, so that every recipe reads alike."""
    order = MULTI_ORDER if "outputs" in recipe.data else SINGLE_ORDER
    seen = [key for key in recipe.data if key in order]
    wanted = [key for key in order if key in seen]
    if seen != wanted:
        wrong = next(s for s, w in zip(seen, wanted, strict=True) if s != w)
        yield Problem(
            f"the section '{wrong}' is out of order",
            f"the order is {', '.join(wanted)}",
            recipe.line(wrong),
        )


@rule("R003", "about-complete", smithy="R-002")
def about_complete(recipe: LintedRecipe) -> Iterator[Problem]:
    """`about` has homepage, summary and license: what the channel's pages show.

    In a recipe of several packages it stands at the top level, where conda-smithy looks for it;
    a package's own section says what is different.
    """
    about = as_dict(recipe.data.get("about"))
    for item in ("homepage", "summary", "license"):
        if not str(about.get(item) or "").strip():
            yield Problem(
                f"about.{item} is missing",
                f"add {item} to the about section",
                recipe.line("about"),
            )


@rule("R004", "spdx-licence", smithy="R-007 R-010 R-044 R-045")
@each_output
def spdx_licence(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """`about.license` is an SPDX expression: what programs that check licences understand.

    A licence that SPDX does not know is written LicenseRef-NAME.
    """
    text = str(output.about.get("license") or "").strip()
    if not text:
        return
    known = re.sub(r"\bLicenseRef-[A-Za-z0-9.-]+", "MIT", text)
    info = licensing().validate(known, strict=True)
    if info.errors:
        yield Problem(
            f"license {text!r} is not an SPDX expression: {' '.join(info.errors[0].split())}",
            "use identifiers of https://spdx.org/licenses, joined by AND, OR, WITH",
            recipe.line(*output.where, "about", "license")
            if "about" in output.data
            else recipe.line("about", "license"),
        )


@rule("R005", "licence-file", smithy="R-013")
@each_output
def licence_file(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """`about.license_file` is there, and the file exists where it can be looked at.

    A file of a downloaded source is checked by the build; one of the recipe's folder, or of a local
    source, is looked for here.
    """
    files = [str(item) for item in flatten(output.about.get("license_file"))]
    if not files:
        yield Problem(
            "about.license_file is missing",
            "name the licence's text: nobody may pass the package on without it",
            recipe.line("about"),
        )
    elif all("path" in source for source in output.sources):
        places = [recipe.folder]
        for source in output.sources:
            place = (recipe.folder / str(source["path"])).resolve()
            places += [place if place.is_dir() else place.parent]
        for file in files:
            if "${{" not in file and not any(_exists(place / file) for place in places):
                yield Problem(
                    f"the licence file {file!r} is neither in the folder nor in the sources",
                    "correct the name, or add the file",
                    recipe.line("about", "license_file"),
                )


def _exists(path: Path) -> bool:
    return path.exists() or any(path.parent.glob(path.name))


@rule("R006", "tests", smithy="R-005 R-006")
@each_output
def tests(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """Every package has a test that can fail: a package that is only built proves nothing."""
    found = [test for test in flatten(output.data.get("tests")) if test]
    if not found:
        yield Problem(
            "no tests",
            "add package_contents, a python import, or a script that uses the package",
            recipe.line(*output.where),
        )


@rule("R007", "package-name", smithy="R-014")
def package_name(recipe: LintedRecipe) -> Iterator[Problem]:
    """A name has lower-case letters, digits, `_`, `-` and `.` only, as on conda-forge."""
    for output in recipe.outputs:
        name = re.sub(r"\$\{\{.*?\}\}", "x", output.name)
        if not NAME.fullmatch(name):
            yield Problem(
                f"the package name {output.name!r} is not allowed",
                "use lower-case letters, digits, '_', '-' and '.'",
                recipe.line(*output.where, "package", "name"),
            )


@rule("R008", "folder-name", smithy="CF-013")
def folder_name(recipe: LintedRecipe) -> Iterator[Problem]:
    """The folder has the recipe's name, so that a person finds it."""
    section = as_dict(recipe.data.get("recipe" if "outputs" in recipe.data else "package"))
    name = str(section.get("name", ""))
    if name and "${{" not in name and name != recipe.name and recipe.text:
        yield Problem(
            f"the recipe {name!r} lies in the folder {recipe.name!r}",
            "give both the same name",
            recipe.line("recipe" if "outputs" in recipe.data else "package", "name"),
        )


@rule("R009", "version", smithy="R-015 R-016 R-040")
def version(recipe: LintedRecipe) -> Iterator[Problem]:
    """The version is there, valid for conda, and text: YAML reads 1.10 as the number 1.1."""
    context = as_dict(recipe.data.get("context"))
    for key, value in context.items():
        if isinstance(value, float):
            yield Problem(
                f"context.{key} is the number {value}",
                f'quote it: {key}: "{value}", or YAML drops trailing zeros',
                recipe.line("context", key),
            )
    sections: list[tuple[tuple[str | int, ...], object]] = [
        ((key,), recipe.data.get(key)) for key in ("package", "recipe")
    ]
    sections += [((*o.where, "package"), o.data.get("package")) for o in recipe.outputs if o.where]
    shared = as_dict(recipe.data.get("recipe")).get("version")
    for where, data in sections:
        if data is None:
            continue
        value = as_dict(data).get("version", shared)
        if value is None:
            if where != ("recipe",):
                yield Problem(
                    f"{'.'.join(map(str, where))}: no version", "add it", recipe.line(*where)
                )
        elif isinstance(value, float):
            yield Problem(
                f"the version {value} is a number",
                f'quote it: "{value}"',
                recipe.line(*where, "version"),
            )
        elif "${{" not in str(value) and (problem := version_problem(str(value))):
            yield Problem(
                f"the version {value!r} is not valid: {problem}",
                "conda's versions have letters, digits, '.', '_', '+' and '!'",
                recipe.line(*where, "version"),
            )


@rule("R010", "maintainers", smithy="R-003 R-004")
def maintainers(recipe: LintedRecipe) -> Iterator[Problem]:
    """`extra.recipe-maintainers` is a list of at least one name: who to ask."""
    found = as_dict(recipe.data.get("extra")).get("recipe-maintainers")
    if not (isinstance(found, list) and found and all(isinstance(n, str) for n in found)):
        yield Problem(
            "extra.recipe-maintainers is not a list of names",
            "add: extra: {recipe-maintainers: [ddl-ce]}",
            recipe.line("extra", "recipe-maintainers"),
        )


@rule("R011", "build-number", smithy="R-008")
def build_number(recipe: LintedRecipe) -> Iterator[Problem]:
    """`build.number` stands in the recipe, so that a rebuild of one version can be preferred.

    In a recipe of several packages it stands in the top-level `build`, for all of them:
    conda-smithy and the bots that raise it look there only.
    """
    if "number" not in as_dict(recipe.data.get("build")):
        yield Problem(
            "build.number is missing at the top level",
            "add: build: {number: 0}",
            recipe.line("build"),
        )


@rule("R012", "end-of-file", level="hint", smithy="R-011 R-012")
def end_of_file(recipe: LintedRecipe) -> Iterator[Problem]:
    """The recipe ends with one newline."""
    if recipe.text and (not recipe.text.endswith("\n") or recipe.text.endswith("\n\n")):
        yield Problem(
            "the file does not end with exactly one newline",
            "end it with one",
            len(recipe.text.splitlines()),
        )


@rule("R013", "expression-spaces", level="hint", smithy="R-025")
def expression_spaces(recipe: LintedRecipe) -> Iterator[Problem]:
    """An expression has one space inside its braces: `${{ name }}`."""
    for text, line in recipe.expressions:
        if text != f" {text.strip()} ":
            yield Problem(
                f"the expression '${{{{{text}}}}}' is not spaced",
                f"write ${{{{ {text.strip()} }}}}",
                line,
            )
