"""The plan for another platform: what it shares with the build platform, and what it lacks."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from ddlce import toolchain as compilers
from ddlce.absent import load_absent
from ddlce.builder import foreign
from ddlce.builder.foreign import add_tools, point_builders
from ddlce.errors import InputError
from ddlce.plan import Plan, make_plan
from ddlce.platforms import get_platform
from ddlce.recipes import load_recipe
from ddlce.store import Store
from ddlce.toolchain import toolchain
from support.minitree import MiniTree
from support.run import ok, run

PPC = "linux-ppc64le"


@pytest.fixture
def compiled(tree: MiniTree) -> MiniTree:
    """`base` is a noarch tool; `lib` and `app` are compiled, `app` on `lib`; `data` is noarch."""
    tree.recipe("lib", build="base")
    tree.recipe("app", run="lib")
    tree.recipe("data", run="app")
    for name in ("lib", "app"):
        edit(tree, name, "noarch: generic, ", "")
    return tree


def edit(tree: MiniTree, folder: str, old: str, new: str) -> None:
    recipe = tree.repo / "recipes" / folder / "recipe.yaml"
    assert old in recipe.read_text()
    recipe.write_text(recipe.read_text().replace(old, new))


def absent(tree: MiniTree, text: str) -> Plan:
    (tree.repo / "recipes" / "absent.yaml").write_text(text)
    return make_plan(tree.settings, PPC)


def test_compiled_packages_are_the_platforms_own_and_noarch_ones_are_shared(
    compiled: MiniTree,
) -> None:
    native, plan = make_plan(compiled.settings), make_plan(compiled.settings, PPC)
    assert {n: s.subdir for n, s in plan.steps.items()} == {
        **dict.fromkeys(("base", "data", "lib@linux-64", "app@linux-64"), "linux-64"),
        **dict.fromkeys(("lib", "app"), PPC),
    }
    assert all(o.subdir == PPC for name in ("lib", "app") for o in plan.steps[name].outputs)
    for name in ("base", "data", "lib@linux-64"):
        assert plan.steps[name].digest == native.steps[name.partition("@")[0]].digest
    assert plan.steps["lib"].digest != native.steps["lib"].digest
    assert plan.absent == {}


def test_the_sandbox_holds_tools_and_what_the_platform_installs(compiled: MiniTree) -> None:
    plan = make_plan(compiled.settings, PPC)
    assert plan.sandbox("lib") == ["base"]
    assert plan.sandbox("app") == ["lib"]  # base is for building lib, on another processor
    assert "base" in plan.closure("app")  # but it must be there first
    order = [*plan.steps]
    assert order.index("base") < order.index("lib") < order.index("app")


def test_a_tool_comes_with_what_its_libraries_say_that_it_needs(compiled: MiniTree) -> None:
    """A compiled tool runs on a library that only the library's run_exports names."""
    compiled.recipe("tool")
    edit(compiled, "tool", "noarch: generic, ", "")
    edit(compiled, "tool", "run: []", "host: [lib]")
    edit(compiled, "lib", "run: []", "run_exports: [lib]")
    compiled.recipe("user", build="tool")
    edit(compiled, "user", "noarch: generic, ", "")
    assert {"tool@linux-64", "lib@linux-64"} <= {*make_plan(compiled.settings, PPC).sandbox("user")}


def test_a_noarch_package_brings_what_it_needs_on_the_platform(compiled: MiniTree) -> None:
    compiled.recipe("user", run="data")
    edit(compiled, "user", "noarch: generic, ", "")
    plan = make_plan(compiled.settings, PPC)
    assert {"data", "app", "lib"} <= {*plan.sandbox("user")}
    assert not any("@" in name for name in plan.sandbox("user"))


def test_the_table_of_absences_takes_out_what_depends_on_them(compiled: MiniTree) -> None:
    plan = absent(compiled, f"{PPC}:\n  lib: >-\n    its makers\n    have  no such machine\n")
    assert plan.absent == {
        "lib": "its makers have no such machine",
        "app": "needs lib",
        "data": "needs app",
    }
    assert not {"lib", "app", "data"} & plan.steps.keys()
    with pytest.raises(InputError) as caught:
        plan.restrict(["app"])
    assert caught.value.message == f"app is not built for {PPC}: needs lib"


def test_a_recipe_s_other_noarch_packages_stay(compiled: MiniTree) -> None:
    """As activations of compilers: one for each platform, of one recipe."""
    (compiled.recipe("tools") / "recipe.yaml").write_text(
        "outputs:\n"
        + "".join(
            f"  - package: {{name: {name}, version: '1'}}\n"
            f"    build: {{noarch: generic, string: 'h${{{{ digest }}}}_0', script: 'true'}}\n"
            f"    requirements: {{run: [{run}]}}\n"
            for name, run in (("for-lib", "lib"), ("for-all", ""))
        )
    )
    compiled.recipe("user", run="for-lib")
    plan = absent(compiled, f"{PPC}: {{lib: none}}\n")
    assert "tools" in plan.steps
    assert {name: why for name, why in plan.absent.items() if name in ("tools", "user")} == {
        "user": "needs for-lib"
    }


def test_the_table_may_name_a_set_s_room(compiled: MiniTree) -> None:
    folder = compiled.settings.recipes / "sets/extra/heap"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text("package: {name: heap, version: '1'}\n")
    plan = absent(compiled, f"{PPC}: {{heap: half of it is compiled}}\n")
    with pytest.raises(InputError) as caught:
        plan.restrict(["heap"])
    assert caught.value.message == f"heap is not built for {PPC}: half of it is compiled"


def test_the_table_says_nothing_of_the_build_platform(compiled: MiniTree) -> None:
    before = {n: s.digest for n, s in make_plan(compiled.settings).steps.items()}
    absent(compiled, f"{PPC}: {{lib: none}}\n")
    assert {n: s.digest for n, s in make_plan(compiled.settings).steps.items()} == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{PPC}: {{bli: none}}\n", "'bli' is no recipe"),
        (f"{PPC}: {{lib: ' '}}\n", "lib: no reason"),
        (f"{PPC}: [lib]\n", f"{PPC}: Input should be a valid dictionary"),
        (f"{PPC}: {{\n", "not valid YAML"),
    ],
)
def test_a_wrong_table_is_refused(compiled: MiniTree, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        absent(compiled, text)
    assert "absent.yaml" in caught.value.message
    assert message in caught.value.message


def test_no_table_is_no_absence(tmp_path: Path) -> None:
    assert load_absent(tmp_path / "absent.yaml", PPC) == {}


def test_a_skipped_recipe_is_on_one_platform_only(compiled: MiniTree) -> None:
    skip = 'build: {skip: [target_platform == "linux-64"], '
    edit(compiled, "app", "build: {", skip)
    edit(compiled, "data", "run: [app]", "run: [lib]")
    assert "app" not in make_plan(compiled.settings).steps
    plan = make_plan(compiled.settings, PPC)
    assert plan.steps["app"].subdir == PPC
    edit(compiled, "app", "linux-64", PPC)
    plan = make_plan(compiled.settings, PPC)
    assert plan.absent == {"app": f"its recipe leaves {PPC} out"}


def test_a_skip_may_ask_for_a_variant(compiled: MiniTree) -> None:
    (compiled.repo / "recipes" / "conda_build_config.yaml").write_text("toy: [one, two]\n")
    edit(compiled, "app", "build: {", 'build: {skip: toy == "two", ')
    edit(compiled, "app", '"h${{ digest }}_0"', '"${{ toy }}_h${{ digest }}_0"')
    made = make_plan(compiled.settings, PPC).steps["app"].outputs
    assert [output.variant["toy"] for output in made] == ["one"]


def test_another_recipe_may_make_the_platforms_own(compiled: MiniTree) -> None:
    """As python_abi: noarch where it is compiled, and the platform's where that has another."""
    edit(compiled, "app", "build: {", f'build: {{skip: target_platform != "{PPC}", ')
    edit(compiled, "app", "name: app", "name: data")
    edit(compiled, "data", "run: [app]", "run: [lib]")
    plan = make_plan(compiled.settings, PPC)
    assert [o.name for o in plan.steps["app"].outputs] == ["data"]
    assert "data" not in plan.steps  # the noarch one is of no use on this platform


def test_selectors_choose_the_platforms_variants(compiled: MiniTree) -> None:
    variants = compiled.repo / "recipes" / "conda_build_config.yaml"
    variants.write_text("toy:\n  - one    # [not ppc64le]\n  - two    # [ppc64le]\n")
    edit(compiled, "app", '"h${{ digest }}_0"', '"${{ toy }}_h${{ digest }}_0"')
    for subdir, toy in (("linux-64", "one"), (PPC, "two")):
        (made,) = make_plan(compiled.settings, subdir).steps["app"].outputs
        assert made.variant["toy"] == toy


def test_the_store_remembers_each_platform_apart(compiled: MiniTree) -> None:
    step = make_plan(compiled.settings, PPC).steps["lib"]
    Store(compiled.settings.store).remember(step.record_name, step.digest, step.parts, [], 1.0)
    assert make_plan(compiled.settings).steps["lib"].why == ("never built",)
    assert make_plan(compiled.settings, PPC).steps["lib"].why == ("not in the store",)


def test_an_unknown_platform_is_refused(compiled: MiniTree) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(compiled.settings, "linux-s390x")
    assert caught.value.message == "linux-s390x: not a known platform"
    assert "linux-ppc64le" in (caught.value.hint or "")


def test_the_plan_shows_absences_with_their_reasons(compiled: MiniTree) -> None:
    absent(compiled, f"{PPC}: {{app: 'there is none'}}\n")
    shown = ok(compiled.ddlce("plan", "--platform", PPC))
    assert "app: there is none" in shown.stdout
    assert shown.stdout.endswith("\n2 recipes: 2 to build, 2 absent\n")
    found = json.loads(compiled.ddlce("plan", "--platform", PPC, "--json").stdout)
    actions = {entry["recipe"]: entry["action"] for entry in found}
    assert actions == {"base": "build", "lib": "build", "app": "absent", "data": "absent"}


def test_the_toolchain_of_another_platform_is_another() -> None:
    assert [*toolchain(PPC)] == ["emulator", "cross settings"]
    assert get_platform(PPC).triple == "powerpc64le-linux-gnu"


def test_nothing_of_the_machine_is_part_of_this_platforms_toolchain() -> None:
    assert toolchain() == {}


def test_what_builders_are_told_is_part_of_the_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(subdir: str) -> dict[str, str]:
        toolchain.cache_clear()
        return toolchain(subdir)

    native, crossed = ask("linux-64"), ask(PPC)
    assert crossed["emulator"]
    monkeypatch.setattr(foreign, "LDD", "of tests only")
    assert ask(PPC) == crossed
    monkeypatch.setattr(compilers, "CONFIGURE", "something else")
    assert {name for name, said in ask(PPC).items() if said != crossed[name]} == {"cross settings"}
    assert ask("linux-64") == native
    toolchain.cache_clear()


def test_cmake_learns_what_it_builds_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CMAKE_TOOLCHAIN_FILE", "CONFIG_SITE"):
        monkeypatch.setenv(name, "")
    point_builders(tmp_path / "tools", get_platform(PPC).triple)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(asks LANGUAGES NONE)\n"
        'message("for ${CMAKE_SYSTEM_PROCESSOR}, crossing: ${CMAKE_CROSSCOMPILING}")\n'
    )
    done = run(["cmake", "-S", tmp_path, "-B", tmp_path / "build"])
    assert "for powerpc64le, crossing: TRUE" in done.stderr


def test_configure_may_try_what_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start of every configure script: it reads the site's file once it has its options."""
    for name in ("CMAKE_TOOLCHAIN_FILE", "CONFIG_SITE"):
        monkeypatch.setenv(name, "")
    point_builders(tmp_path / "tools", get_platform(PPC).triple)
    for before, after in (("yes", "maybe"), ("no", "no")):
        script = f'cross_compiling={before}; . "$CONFIG_SITE"; echo "$cross_compiling"'
        done = run(["sh", "-eu", "-c", script])
        assert done.stdout == f"{after}\n", done.stderr


def test_ldd_for_another_platform_starts_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    add_tools(tmp_path / "tools", get_platform(PPC).triple)
    assert shutil.which("ldd") == str(tmp_path / "tools" / "ldd")
    # This machine's own program does, too: what is asked is its own loader.
    found = run(["ldd", "/bin/sh"], check=True)
    assert "libc.so.6 => /" in found.stdout
    nothing = run(["ldd", str(tmp_path / "absent")])
    assert nothing.returncode


def test_tools_of_several_packages_have_licences_by_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    packages = []
    for tool, licence in (("first", "copyright/of-it"), ("second", "copyright")):
        packages.append(tmp_path / f"{tool}-1-0.tar.bz2")
        with tarfile.open(packages[-1], "w:bz2") as package:
            for name in (f"bin/{tool}", f"info/licenses/{licence}"):
                member = tarfile.TarInfo(name)
                member.mode = 0o755
                package.addfile(member)
    add_tools(tmp_path / "tools", get_platform(PPC).triple, packages)
    assert all(shutil.which(tool) for tool in ("first", "second"))


def test_a_recipe_of_the_tree_has_no_skip_that_the_engine_cannot_read(compiled: MiniTree) -> None:
    recipe = compiled.repo / "recipes" / "app" / "recipe.yaml"
    edit(compiled, "app", "build: {", "build: {skip: no such words, ")
    assert load_recipe(recipe).data["build"]["skip"] == "no such words"
    with pytest.raises(InputError) as caught:
        make_plan(compiled.settings)
    assert str(recipe) in caught.value.message
