"""Which recipe starts first: the costs of builds, measured here or in the tree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlce.builder import costs
from ddlce.errors import InputError
from ddlce.plan import Plan, make_plan
from ddlce.settings import Settings
from ddlce.store import Store
from support.minitree import MiniTree
from support.run import ok


def write(tree: MiniTree, **seconds: float) -> None:
    lines = [f"{name}: {value}\n" for name, value in seconds.items()]
    (tree.repo / "recipes" / costs.FILE).write_text("".join(lines))


def remember(settings: Settings, plan: Plan, name: str, seconds: float) -> None:
    step = plan.steps[name]
    Store(settings.store).remember(step.record_name, step.digest, step.parts, [], seconds)


def log(settings: Settings, name: str, text: str) -> None:
    settings.logs.mkdir(parents=True, exist_ok=True)
    (settings.logs / f"{name}.log").write_text(text)


def test_a_fresh_machine_takes_those_of_the_tree(tree: MiniTree) -> None:
    write(tree, base=30, lib=5)
    plan = make_plan(tree.settings)
    own = costs.own_costs(tree.settings, plan)
    assert own == {"base": 30, "lib": 5, "app": costs.UNKNOWN}
    # lib builds on base, and app runs with lib
    assert costs.to_the_end(plan, own) == {"base": 45, "lib": 15, "app": 10}


def test_a_machine_s_own_scale_the_tree_s(tree: MiniTree) -> None:
    write(tree, base=30, lib=5, app=7)
    plan = make_plan(tree.settings)
    remember(tree.settings, plan, "base", 60.0)
    assert costs.own_costs(tree.settings, plan) == {"base": 60, "lib": 10, "app": 14}


def test_they_are_in_no_digest(tree: MiniTree) -> None:
    before = {name: step.digest for name, step in make_plan(tree.settings).steps.items()}
    write(tree, base=30)
    assert {name: step.digest for name, step in make_plan(tree.settings).steps.items()} == before


@pytest.mark.parametrize("text", ["- base\n", "base: long\n", "base: -1\n", "base\n"])
def test_a_broken_table_is_a_designed_error(tree: MiniTree, text: str) -> None:
    path = tree.repo / "recipes" / costs.FILE
    path.write_text(text)
    with pytest.raises(InputError, match=f"^{path}: is not a table of recipes and seconds$"):
        costs.own_costs(tree.settings, make_plan(tree.settings))


def test_a_table_that_is_no_yaml_names_its_line(tree: MiniTree) -> None:
    path = tree.repo / "recipes" / costs.FILE
    path.write_text("base: 1\n<<<<<<< ours\nlib: [\n")
    with pytest.raises(InputError, match=rf"^{path}:\d: not valid YAML: ") as caught:
        costs.own_costs(tree.settings, make_plan(tree.settings))
    assert "delete it" in (caught.value.hint or "")


def test_they_are_written_from_the_logs_of_complete_builds(tree: MiniTree) -> None:
    settings, plan = tree.settings, make_plan(tree.settings)
    write(tree, base=30, gone=4)
    took = "--- lib: build took 2.5 s of CPU time\n--- lib: test took 4.6 s of CPU time\n"
    log(settings, "lib-0123456789", f"{took}--- lib: done\n")
    log(settings, "base-0123456789", "--- base: build took 99.0 s of CPU time\n")  # it failed
    log(settings, "app-extra-0123456789", "--- x: build took 9.0 s of CPU time\n--- x: done\n")
    assert costs.save_costs(settings, plan) == 1
    path = settings.recipes / costs.FILE
    assert path.read_text() == f"{costs.HEAD}base: 30\ngone: 4\nlib: 7\n"


@dataclass(frozen=True)
class Replay:
    """What a build would take.

    Attributes:
        seconds: from its start to its end.
        idle: the share of the CPUs' time in which they have nothing to do.
    """

    seconds: float
    idle: float


def replay(plan: Plan, own: Mapping[str, float], first: Mapping[str, float], jobs: int) -> Replay:
    """Build everything, on paper.

    Args:
        plan: the steps; all are taken to be built.
        own: the seconds of each.
        first: of those that can start, the one with the largest number here does.
        jobs: how many CPUs there are, each with one recipe at a time.
    """
    todo, running, done, now = {*plan.steps}, dict[str, float](), set[str](), 0.0
    below = {name: {*plan.sandbox(name)} for name in plan.steps}
    while todo or running:
        ready = sorted((n for n in todo if below[n] <= done), key=lambda n: (-first[n], n))
        for name in ready[: jobs - len(running)]:
            todo.remove(name)
            running[name] = now + own[name]
        ended = min(running, key=lambda name: (running[name], name))
        now = running.pop(ended)
        done.add(ended)
    return Replay(now, 1 - sum(own[name] for name in plan.steps) / (now * jobs) if now else 0.0)


def test_the_longest_way_first_ends_sooner(tree: MiniTree) -> None:
    for name in ("early", "long"):
        tree.recipe(name)
    plan = make_plan(tree.settings)
    own = {"base": 1.0, "lib": 1.0, "app": 1.0, "early": 3.0, "long": 6.0}
    seen = replay(plan, own, costs.to_the_end(plan, own), 2)
    assert (seen.seconds, seen.idle) == (6.0, 0.0)
    # Taken for equal, the chain starts first, and the long one is alone at the end.
    blind = replay(plan, own, costs.to_the_end(plan, dict.fromkeys(own, 10.0)), 2)
    assert blind.seconds == 9.0
    assert blind.idle == pytest.approx(1 / 3)


def test_the_tree_s_table_names_recipes_of_the_tree() -> None:
    recipes = Path(__file__).parents[2] / "recipes"
    assert costs.read_costs(recipes / costs.FILE)["horovod"] > 100


def test_where_the_time_went(tmp_path: Path) -> None:
    logs = {}
    for name, build, test in (("a", 1, 2), ("b", 40, 3.4), ("c", 7, 0), ("d", 5, 0)):
        logs[name] = tmp_path / f"{name}.log"
        logs[name].write_text(
            f"--- {name}: build took {build} s of CPU time\nnoise\n"
            f"--- {name}-more: build took 0.5 s of CPU time\n"
            f"--- {name}: test took {test} s of CPU time\n--- {name}: done\n"
        )
    assert costs.where_time_went(logs) == (
        "60 s of CPU: build 55 s, test 5 s; longest: b 44 s, c 8 s, d 6 s"
    )


def test_a_build_ends_with_where_the_time_went(tree: MiniTree) -> None:
    done = ok(tree.ddlce("build", "base"))
    said = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"time: \d+ s of CPU: .*\btest \d+ s.*; longest: base \d+ s", said), said
