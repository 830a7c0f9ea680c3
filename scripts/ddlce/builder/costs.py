"""The seconds that each recipe's build takes, by which the scheduler chooses what starts first."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from pathlib import Path

from ddlce.digest import SHORT
from ddlce.errors import InputError
from ddlce.files import write_atomic
from ddlce.model.document import load_yaml
from ddlce.plan import Plan
from ddlce.settings import Settings
from ddlce.store import Store

#: In the folder of recipes, and in no recipe's folder: a measurement changes no digest.
FILE = "costs.yaml"

HEAD = """\
# CPU seconds of each recipe's build, tests included, on one machine: what a machine that has built
# nothing yet starts first. `ddlce build --save-costs` writes it from the logs of this machine.
"""

#: A recipe that nobody has measured.
UNKNOWN = 10.0

_DIGEST = re.compile(rf"-[0-9a-f]{{{SHORT}}}")
_TOOK = re.compile(r"^--- .*: (\w+) took ([0-9.]+) s of CPU time$", re.MULTILINE)

#: Recipes that are named as the longest.
LONGEST = 3


def own_costs(settings: Settings, plan: Plan) -> dict[str, float]:
    """Seconds for each step of the plan.

    Those of this machine where it has built the recipe; else those in the tree, scaled by the
    median of the ratios of the recipes that are in both.
    """
    store, tree = Store(settings.store), read_costs(settings.recipes / FILE)
    records = {name: store.last_build(step.record_name) for name, step in plan.steps.items()}
    here = {name: record.seconds for name, record in records.items() if record}
    ratios = [here[name] / tree[name] for name in here.keys() & tree.keys() if tree[name] > 0]
    factor = statistics.median(ratios) if ratios else 1.0
    return {
        name: here.get(name, factor * tree.get(name.partition("@")[0], UNKNOWN))
        for name in plan.steps
    }


def to_the_end(plan: Plan, own: Mapping[str, float]) -> dict[str, float]:
    """Seconds from each step's start to the end of all above it; the longest starts first."""
    cost: dict[str, float] = {}
    for name in reversed(plan.steps):
        above = [cost[s.name] for s in plan.steps.values() if name in s.after]
        cost[name] = own[name] + max(above, default=0.0)
    return cost


def read_costs(path: Path) -> dict[str, float]:
    """The tree's figures; none where there is no such file.

    Raises:
        InputError: it is not YAML, or no mapping of names to seconds.
    """
    if not path.is_file():
        return {}
    hint = "delete it, and write it again, after a build: ddlce build --save-costs"
    costs = load_yaml(path, hint=hint)
    if not isinstance(costs, dict) or not all(
        isinstance(value, int | float) and value >= 0 for value in costs.values()
    ):
        raise InputError(f"{path}: is not a table of recipes and seconds", hint)
    return {str(name): float(value) for name, value in costs.items()}


def save_costs(settings: Settings, plan: Plan) -> int:
    """Write the tree's figures from the logs of this machine's builds; returns how many are new.

    A recipe without a log keeps its figure.
    """
    path = settings.recipes / FILE
    costs = read_costs(path)
    measured = {}
    for step in plan.steps.values():
        seconds = _of_logs(settings.logs, step.name)
        if seconds and "@" not in step.name:
            measured[step.name] = seconds
    rows = sorted((costs | measured).items())
    write_atomic(path, HEAD + "".join(f"{name}: {seconds:.0f}\n" for name, seconds in rows))
    return len(measured)


def _of_logs(folder: Path, name: str) -> float:
    """CPU seconds of the build in the recipe's newest complete log; 0 where there is none."""
    logs = (
        path for path in folder.glob(f"{name}-*.log") if _DIGEST.fullmatch(path.stem[len(name) :])
    )
    for path in sorted(logs, key=lambda path: path.stat().st_mtime, reverse=True):
        text = path.read_text(errors="replace")
        if text.rstrip().endswith(": done"):
            return sum(_phases(text).values())
    return 0.0


def _phases(log: str) -> dict[str, float]:
    """Phase → CPU seconds, of a log's text."""
    found: dict[str, float] = {}
    for phase, seconds in _TOOK.findall(log):
        found[phase] = found.get(phase, 0.0) + float(seconds)
    return found


def where_time_went(logs: Mapping[str, Path]) -> str:
    """One line: the CPU time of some builds, by phase, and the recipes that took most of it.

    Args:
        logs: recipe → its log.
    """
    phases: dict[str, float] = {}
    recipes: dict[str, float] = {}
    for name, path in logs.items():
        for phase, seconds in _phases(path.read_text(errors="replace")).items():
            phases[phase] = phases.get(phase, 0.0) + seconds
            recipes[name] = recipes.get(name, 0.0) + seconds

    def said(found: Mapping[str, float], most: int) -> str:
        longest = sorted(found, key=lambda name: -found[name])[:most]
        return ", ".join(f"{name} {found[name]:.0f} s" for name in longest)

    longest = said(recipes, LONGEST)
    return f"{sum(phases.values()):.0f} s of CPU: {said(phases, len(phases))}; longest: {longest}"
