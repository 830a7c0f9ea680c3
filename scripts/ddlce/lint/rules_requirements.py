"""Rules about what a package is made from and with: sources, requirements, variants."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jinja2 import Environment, TemplateSyntaxError, meta

from ddlce.engine.parse import spec_problem
from ddlce.lint.linted import SECTIONS, LintedRecipe, OutputSection, as_dict
from ddlce.lint.rule import Problem, each_output, rule

#: What rattler-build, or our builder (`digest`), gives every expression.
GIVEN = frozenset(
    {
        *("compiler", "stdlib", "pin_subpackage", "pin_compatible", "cdt", "match", "env"),
        *("load_from_file", "git", "hash", "digest", "true", "false", "none"),
        *("target_platform", "host_platform", "build_platform", "arch", "linux", "osx", "win"),
        *("unix", "x86_64", "ppc64le", "aarch64", "PYTHON", "PREFIX", "RECIPE_DIR", "SRC_DIR"),
    }
)

#: Filters that rattler-build has beside Jinja's.
FILTERS = ("bool", "split", "version_to_buildstring")

COMPILER = re.compile(r"compiler\(\s*['\"](\w+)['\"]\s*\)")
STDLIB = re.compile(r"stdlib\(\s*['\"](\w+)['\"]\s*\)")
PIN = re.compile(r"(pin_subpackage|pin_compatible)\(\s*['\"]([^'\"]+)['\"]")


@rule("R020", "source-hash", smithy="R-019")
@each_output
def source_hash(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """Every source that is fetched has its sha256 in the recipe."""
    for source in output.sources:
        if "url" in source and not source.get("sha256"):
            yield Problem(
                f"the source {source['url']} has no sha256",
                "add the sha256 that 'ddlce sources add' prints",
                recipe.line(*output.where, "source"),
            )


@rule("D001", "sources-locked")
@each_output
def sources_locked(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """Every sha256 of a recipe is in sources.lock, or the bytes cannot be fetched."""
    for source in output.sources:
        digest = source.get("sha256")
        if digest and "${{" not in str(digest) and digest not in recipe.tree.locked:
            yield Problem(
                f"sha256 {str(digest)[:12]}… of {source.get('url')} is not in sources.lock",
                "run: ddlce sources add CLIENT:PACKAGE",
                recipe.line(*output.where, "source"),
            )


@rule("R021", "requirement-form", smithy="R-021 R-022 R-048")
@each_output
def requirement_form(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """A requirement is `name [version [build]]`, with blanks between the parts only.

    `numpy>=1` and `numpy >= 1` are read differently by different programs.
    """
    for section, text in output.all_requirements:
        if "${{" in text:
            continue
        name = re.match(r"[^\s=<>!~\[]+", text)
        joined = name and re.match(r"[=<>!~]", text[name.end() :])
        if joined or re.search(r"[=<>!~,|]\s", text) or re.search(r"\s[,|]", text):
            yield Problem(
                f"requirements.{section}: {text!r} is not 'name version build'",
                "one blank between name and version, none inside the version",
                _line(recipe, output, section),
            )
        elif problem := spec_problem(text):
            yield Problem(
                f"requirements.{section}: {text!r}: {problem}",
                "write it as 'name', 'name >=1.2,<2' or 'name 1.2.* build'",
                _line(recipe, output, section),
            )


@rule("R022", "requirements-order", smithy="R-009")
@each_output
def requirements_order(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """The sections of `requirements` stand in the order in which they are used."""
    seen = [s for s in as_dict(output.data.get("requirements")) if s in SECTIONS]
    wanted = [s for s in SECTIONS if s in seen]
    if seen != wanted:
        yield Problem(
            f"requirements are in the order {', '.join(seen)}",
            f"the order is {', '.join(wanted)}",
            recipe.line(*output.where, "requirements"),
        )


@rule("R023", "stdlib-beside-compiler", smithy="R-033")
@each_output
def stdlib_beside_compiler(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """An output that uses a compiler also uses stdlib('c'): it declares the glibc floor."""
    build = output.requirements("build")
    if output.compiled and not any(STDLIB.search(item) for item in build):
        yield Problem(
            "a compiler without stdlib('c')",
            "add to requirements.build: ${{ stdlib('c') }}",
            _line(recipe, output, "build"),
        )


@rule("R024", "no-direct-sysroot", smithy="R-034")
@each_output
def no_direct_sysroot(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """No recipe names the sysroot itself; stdlib('c') does, by variant.

    Nor the C library, if it is compiled: the sysroot exports the floor. What is made from a
    wheel has its floor from the wheel.
    """
    for section, text in output.all_requirements:
        library = re.match(r"(?:__)?glibc\b", text)
        if re.match(r"(?:sysroot|glibc)_", text) or (output.compiled and library):
            yield Problem(
                f"requirements.{section} names {text!r}",
                "use ${{ stdlib('c') }}, and c_stdlib_version in conda_build_config.yaml",
                _line(recipe, output, section),
            )


@rule("R025", "python-host-and-run", smithy="R-023 R-024")
@each_output
def python_host_and_run(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """A package built against python also runs on it; its version is the variant's.

    In a package for one platform the requirement is the bare name: conda_build_config.yaml
    pins it while building, and python_abi, which python exports, while running.
    """
    host, run = ([s.split() for s in output.requirements(k)] for k in ("host", "run"))
    if any(spec[0] == "python" for spec in host) and not any(s[0] == "python" for s in run):
        yield Problem(
            "python is in requirements.host, but not in requirements.run",
            "add python to requirements.run",
            _line(recipe, output, "run"),
        )
    pinned = any(spec[0] == "python" and len(spec) > 1 for spec in (*host, *run))
    if pinned and not output.noarch:
        yield Problem(
            "python has a version in a package for one platform",
            "write 'python' alone; conda_build_config.yaml has the version",
            _line(recipe, output, "host"),
        )


@rule("R026", "noarch-python-floor", smithy="R-026")
@each_output
def noarch_python_floor(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """A noarch python package says the oldest python that it runs on."""
    if output.noarch != "python":
        return
    specs = [s for s in output.requirements("run") if re.match(r"python\b", s)]
    if not any(">=" in spec or "python_min" in spec for spec in specs):
        yield Problem(
            "noarch: python without an oldest python version",
            "add to requirements.run: python >=3.11",
            _line(recipe, output, "run"),
        )


@rule("R027", "pin-the-right-way", smithy="R-027")
def pin_the_right_way(recipe: LintedRecipe) -> Iterator[Problem]:
    """pin_subpackage pins what this recipe makes; pin_compatible pins what it builds on."""
    own = {output.name for output in recipe.outputs}
    for text, line in recipe.expressions:
        for function, name in PIN.findall(text):
            if function == "pin_subpackage" and name not in own and "${{" not in "".join(own):
                yield Problem(
                    f"pin_subpackage('{name}'), but this recipe does not make {name}",
                    "use pin_compatible, or correct the name",
                    line,
                )
            if function == "pin_compatible" and name in own:
                yield Problem(
                    f"pin_compatible('{name}'), but this recipe makes {name}",
                    "use pin_subpackage",
                    line,
                )


@rule("R028", "no-own-pins", level="hint", smithy="CF-006 R-017")
@each_output
def no_own_pins(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """What conda_build_config.yaml pins is named without a version in `host`.

    One pin for all keeps two packages of a release from being built on different ABIs.
    """
    for text in output.requirements("host"):
        name, _, version = text.partition(" ")
        if version and "${{" not in text and name.replace("-", "_") in recipe.tree.variants:
            yield Problem(
                f"requirements.host: {text!r} overrides the pin of {name}",
                f"write '{name}' alone; its version stands in conda_build_config.yaml",
                _line(recipe, output, "host"),
            )


@rule("D002", "variants-known")
def variants_known(recipe: LintedRecipe) -> Iterator[Problem]:
    """Every variable of an expression is in `context` or in conda_build_config.yaml.

    compiler('x') needs x_compiler there, and stdlib('x') needs x_stdlib and its version.
    """
    known = recipe.tree.variants | GIVEN | as_dict(recipe.data.get("context")).keys()
    environment = Environment()
    environment.filters.update(dict.fromkeys(FILTERS, str))
    for text, line in recipe.expressions:
        try:
            used = meta.find_undeclared_variables(environment.parse("{{" + text + "}}"))
        except TemplateSyntaxError as error:
            yield Problem(
                f"the expression '${{{{{text}}}}}' is not valid: {error.message}",
                "correct it",
                line,
            )
            continue
        used |= {f"{language}_compiler" for language in COMPILER.findall(text)}
        used |= {f"{language}_stdlib" for language in STDLIB.findall(text)}
        for name in sorted(used - known):
            yield Problem(
                f"the variable {name!r} is neither in context nor in conda_build_config.yaml",
                "add it to one of them, or correct the name",
                line,
            )


@rule("R029", "noarch-without-selectors", smithy="R1-002")
@each_output
def noarch_without_selectors(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """A noarch package has no conditions on the platform: it is built once for all."""
    if not output.noarch:
        return
    if "skip" in output.build:
        yield Problem(
            "noarch, but build.skip",
            "drop the condition, or drop noarch",
            recipe.line(*output.where, "build", "skip"),
        )
    for section in SECTIONS:
        items = as_dict(output.data.get("requirements")).get(section) or []
        if any(isinstance(item, dict) and "if" in item for item in items):
            yield Problem(
                f"noarch, but requirements.{section} has an 'if'",
                "drop the condition, or drop noarch",
                _line(recipe, output, section),
            )


@rule("R031", "no-comment-selectors", smithy="R1-001")
def no_comment_selectors(recipe: LintedRecipe) -> Iterator[Problem]:
    """A condition is `if … then`; a selector in a comment, as meta.yaml had, does nothing."""
    for number, line in enumerate(recipe.text.splitlines(), 1):
        if match := re.search(r"\S\s+#\s*(\[[^\]]+\])\s*$", line):
            yield Problem(
                f"the comment {match[1]} is no condition in a v1 recipe",
                "write: - if: CONDITION, then: VALUE",
                number,
            )


@rule("R030", "build-backend", level="hint", smithy="R-046 R-050")
@each_output
def build_backend(recipe: LintedRecipe, output: OutputSection) -> Iterator[Problem]:
    """A python package that is built with pip names its build backend in `host`."""
    backends = {
        "setuptools",
        "flit-core",
        "hatchling",
        "poetry-core",
        "meson-python",
        "scikit-build-core",
        "maturin",
        "pdm-backend",
        "nanobind",
        "uv-build",
    }
    host = {text.split()[0] for text in output.requirements("host")}
    if "pip" in host and not host & backends:
        yield Problem(
            "pip in requirements.host without a build backend",
            "add the backend that its pyproject.toml names, for example setuptools",
            _line(recipe, output, "host"),
        )


def _line(recipe: LintedRecipe, output: OutputSection, section: str) -> int | None:
    return recipe.line(*output.where, "requirements", section)
