"""The plan: order, digests, reasons, and the errors of a wrong graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.errors import InputError
from ddlce.plan import Plan, make_plan
from ddlce.store import Store
from support.minitree import MiniTree


def digests(plan: Plan) -> dict[str, str]:
    return {name: step.digest for name, step in plan.steps.items()}


def changed(before: Plan, after: Plan) -> set[str]:
    return {n for n, d in digests(after).items() if digests(before).get(n) != d}


def test_order_follows_every_kind_of_dependency(tree: MiniTree) -> None:
    names = [*make_plan(tree.settings).steps]
    assert names.index("base") < names.index("lib") < names.index("app")


def test_same_inputs_same_digest(tree: MiniTree) -> None:
    assert digests(make_plan(tree.settings)) == digests(make_plan(tree.settings))


def test_digest_does_not_depend_on_where_the_tree_is(tree: MiniTree, tmp_path: Path) -> None:
    (tree.repo / "LICENSE").write_text("MIT\n")
    recipe = tree.repo / "recipes" / "lib" / "recipe.yaml"
    recipe.write_text(recipe.read_text() + "source: [{path: ../../LICENSE}]\n")
    before = digests(make_plan(tree.settings))
    moved = MiniTree(tmp_path / "elsewhere")
    moved.folder.mkdir()
    tree.repo.rename(moved.repo)
    assert digests(make_plan(moved.settings)) == before


@pytest.mark.parametrize(
    ("folder", "file", "expected"),
    [
        ("base", "build.sh", {"base", "lib"}),  # lib builds on base; app only runs with lib
        ("lib", "build.sh", {"lib"}),
        ("app", "recipe.yaml", {"app"}),
        ("lib", "tests/extra.py", set()),  # a developer's: it goes into no package
        ("lib", "README.md", set()),
        ("app", "tests.py", {"app"}),
    ],
)
def test_a_changed_file_changes_its_recipe_and_what_builds_on_it(
    tree: MiniTree, folder: str, file: str, expected: set[str]
) -> None:
    before = make_plan(tree.settings)
    path = tree.repo / "recipes" / folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + "\n# touched\n")
    assert changed(before, make_plan(tree.settings)) == expected


@pytest.mark.parametrize(
    "named",
    [
        *(
            "[tests/]",
            "[tests]",
            "[tests/extra.py]",
            "['tests/*.py']",
            "['tests/${{ target_platform[:0] }}extra.py']",
        ),
        "[{if: linux, then: tests/extra.py}]",
        "[{if: win, then: [x], else: [tests/extra.py]}]",
    ],
)
def test_a_changed_test_of_the_package_changes_its_recipe(tree: MiniTree, named: str) -> None:
    folder = tree.repo / "recipes" / "lib"
    (folder / "tests").mkdir()
    (folder / "tests" / "extra.py").write_text("\n")
    recipe = folder / "recipe.yaml"
    taken = f"{{if: unix, then: [{{script: 'true', files: {{recipe: {named}}}}}]}}"
    recipe.write_text(recipe.read_text().replace("tests: [", f"tests: [{taken}, "))
    before = make_plan(tree.settings)
    (folder / "tests" / "extra.py").write_text("# touched\n")
    assert changed(before, make_plan(tree.settings)) == {"lib"}


def test_what_tools_leave_in_a_room_changes_nothing(tree: MiniTree) -> None:
    before = make_plan(tree.settings)
    junk = tree.repo / "recipes" / "lib" / "__pycache__" / "x.pyc"
    junk.parent.mkdir()
    junk.write_bytes(b"x")
    assert changed(before, make_plan(tree.settings)) == set()


def test_a_variant_that_is_not_used_changes_nothing_and_a_used_one_does(tree: MiniTree) -> None:
    recipe = tree.repo / "recipes" / "lib" / "recipe.yaml"
    recipe.write_text(recipe.read_text() + "context: {v: '${{ toy_variant }}'}\n")
    before = make_plan(tree.settings)
    variants = tree.repo / "recipes" / "conda_build_config.yaml"
    variants.write_text("toy_variant: ['1']\nother: ['x']\n")
    assert changed(before, make_plan(tree.settings)) == set()
    variants.write_text("toy_variant: ['2']\n")
    assert "lib" in changed(before, make_plan(tree.settings))


def test_a_step_says_which_input_changed(tree: MiniTree) -> None:
    step = make_plan(tree.settings).steps["base"]
    assert step.why == ("never built",)
    Store(tree.settings.store).remember("base", step.digest, step.parts, [], 1.0)
    script = tree.repo / "recipes" / "base" / "build.sh"
    script.write_text(script.read_text() + "true\n")
    assert make_plan(tree.settings).steps["base"].why == ("file build.sh changed",)


def test_a_build_string_without_the_digest_is_refused(tree: MiniTree) -> None:
    recipe = tree.repo / "recipes" / "base" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("h${{ digest }}_0", "fixed"))
    with pytest.raises(InputError) as caught:
        make_plan(tree.settings)
    assert caught.value.message == (
        f"{recipe}: base has the build string 'fixed', in which there is no digest"
    )
    assert "string: h${{ digest }}_0" in str(caught.value.hint)


def test_a_cycle_names_the_recipes(tree: MiniTree) -> None:
    tree.recipe("base", build="app")
    with pytest.raises(InputError) as caught:
        make_plan(tree.settings)
    message = caught.value.message
    assert message.startswith("the recipes depend on each other in a cycle: ")
    assert {"base", "lib", "app"} <= set(message.partition(": ")[2].split(" → "))


def test_an_export_that_is_ignored_is_no_dependency(tree: MiniTree) -> None:
    folder = tree.recipe("base")
    recipe = folder / "recipe.yaml"
    exporting = "requirements: {run_exports: {strong: [app]}, "
    recipe.write_text(recipe.read_text().replace("requirements: {", exporting))
    lib = tree.repo / "recipes" / "lib" / "recipe.yaml"
    taken = lib.read_text()
    with pytest.raises(InputError, match="in a cycle"):  # app runs with lib
        make_plan(tree.settings)
    for ignored in ("from_package: [base]", "by_name: [app]"):
        words = f"requirements: {{ignore_run_exports: {{{ignored}}}, "
        lib.write_text(taken.replace("requirements: {", words))
        assert [*make_plan(tree.settings).steps] == ["base", "lib", "app"]


def test_an_unknown_dependency_names_recipe_and_package(tree: MiniTree) -> None:
    folder = tree.recipe("lib", build="bsae")
    with pytest.raises(InputError) as caught:
        make_plan(tree.settings)
    assert caught.value.message == (
        f"{folder}/recipe.yaml: lib depends on 'bsae', which no recipe makes"
    )


def test_two_recipes_for_one_package(tree: MiniTree) -> None:
    other = tree.recipe("other")
    (other / "recipe.yaml").write_text(
        (other / "recipe.yaml").read_text().replace("name: other", "name: base")
    )
    with pytest.raises(InputError, match="makes the package 'base', and so does"):
        make_plan(tree.settings)


def test_a_recipe_that_is_not_yaml_names_file_and_line(tree: MiniTree) -> None:
    path = tree.repo / "recipes" / "lib" / "recipe.yaml"
    path.write_text("package: {name: lib\nbuild: [")
    with pytest.raises(InputError, match=r"lib/recipe\.yaml:2: not valid YAML: "):
        make_plan(tree.settings)


def test_a_typo_in_a_recipe_key_is_named(tree: MiniTree) -> None:
    path = tree.repo / "recipes" / "lib" / "recipe.yaml"
    path.write_text(path.read_text().replace("requirements:", "requirments:"))
    with pytest.raises(InputError, match=r"lib/recipe\.yaml: (?s:.)*requirments"):
        make_plan(tree.settings)


def test_restrict_takes_a_package_and_what_it_stands_on(tree: MiniTree) -> None:
    plan = make_plan(tree.settings)
    assert [*plan.restrict(["lib"]).steps] == ["base", "lib"]
    with pytest.raises(InputError, match="nothing: no such recipe or package"):
        plan.restrict(["nothing"])
