"""`ddlce lint`."""

from __future__ import annotations

from typing import Annotated

import typer

from ddlce.cli.common import JsonOption, app, err, out, print_json
from ddlce.errors import InputError
from ddlce.settings import load_settings


@app.command()
def lint(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PKG]...", help="Recipes; default: all.")
    ] = None,
    as_json: JsonOption = False,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules.")] = False,
    explain: Annotated[
        str | None, typer.Option(metavar="ID", help="Explain one rule.", show_default=False)
    ] = None,
) -> None:
    """Check recipes: schema, licence, tests, locked sources, names, pins, scripts.

    Exit code 2 when a recipe breaks a rule; hints alone do not fail.

    Example:
        ddlce lint openssl
    """
    from dataclasses import asdict

    from ddlce.lint.rule import RULES
    from ddlce.lint.run import lint as run

    if rules:
        for rule in sorted(RULES.values(), key=lambda rule: (rule.id[0] != "R", rule.id)):
            out.print(f"{rule.id}  {rule.level:5}  {rule.name}")
        return
    if explain:
        _explain(explain)
        return
    violations = run(load_settings(), names or ())
    errors = [finding for finding in violations if finding.level == "error"]
    if as_json:
        print_json([asdict(finding) for finding in violations])
    else:
        for finding in violations:
            out.print(str(finding), markup=False)
    if errors:
        recipes = len({finding.recipe for finding in errors})
        raise InputError(
            f"{len(errors)} problem(s) in {recipes} recipe(s)",
            "each has its rule's id above; 'ddlce lint --explain ID' says what the rule is for",
        )
    err.print(f"lint: no errors, {len(violations)} hint(s)")


def _explain(rule_id: str) -> None:
    from ddlce.lint.rule import RULES

    rule = RULES.get(rule_id.upper())
    if rule is None:
        raise InputError(f"--explain {rule_id}: no such rule", "list them: ddlce lint --rules")
    out.print(f"{rule.id} {rule.name} ({rule.level})\n\n{rule.doc}", markup=False)
    if rule.smithy:
        out.print(f"\nCovers conda-smithy's {', '.join(rule.smithy)}.", markup=False)
