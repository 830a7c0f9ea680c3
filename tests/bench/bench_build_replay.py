"""How long a cold build would take on 2, 4 and 8 cores, by replaying the measured costs.

    python tests/bench/bench_build_replay.py --cores 2 4 8

The costs are those of recipes/costs.yaml, CPU seconds of one machine. Each package has one core to
itself, as if none compiled in parallel, and starts by the scheduler's own rule: what is longest to
the end comes first. Beside it, the same where nothing is known of any recipe. The bound is the
longer of the work by the cores and of the longest chain. Writes tests/bench/out/build_replay.json.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.command import HERE, asker, run_command, write_report
from ddlce.builder.costs import FILE, UNKNOWN, read_costs, to_the_end
from ddlce.plan import Plan, make_plan
from ddlce.settings import load_settings

OUT = HERE / "out" / "build_replay.json"


def replay(plan: Plan, own: Mapping[str, float], first: Mapping[str, float], cores: int) -> float:
    """Seconds until all is built.

    Args:
        plan: the steps, all to be built.
        own: each step's seconds.
        first: each step's seconds to the end, as the scheduler believes; the largest starts first.
        cores: how many steps run at once.
    """
    below = {name: set(plan.sandbox(name)) & plan.steps.keys() - {name} for name in plan.steps}
    todo, done = set(plan.steps), set[str]()
    running: list[tuple[float, str]] = []
    now = 0.0
    while todo or running:
        ready = sorted((n for n in todo if below[n] <= done), key=lambda n: (-first[n], n))
        for name in ready[: cores - len(running)]:
            todo.remove(name)
            heapq.heappush(running, (now + own[name], name))
        now, name = heapq.heappop(running)
        done.add(name)
    return now


def main() -> None:
    """Print the table and write the report."""
    parser = asker(__doc__)
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 4, 8])
    options = parser.parse_args()
    settings = load_settings()
    plan = make_plan(settings)
    tree = read_costs(settings.recipes / FILE)
    own = {name: tree.get(name, UNKNOWN) for name in plan.steps}
    known = to_the_end(plan, own)
    unknown = to_the_end(plan, dict.fromkeys(plan.steps, UNKNOWN))
    work, chain = sum(own.values()), max(known.values())
    rows = []
    print(f"{len(own)} recipes, {work:.0f} s of CPU, the longest chain {chain:.0f} s")
    print("seconds\ncores  bound  known  idle  unknown  idle")
    for cores in options.cores:
        times = [replay(plan, own, first, cores) for first in (known, unknown)]
        idle = [1 - work / (cores * seconds) for seconds in times]
        bound = max(work / cores, chain)
        print(
            f"{cores:5} {bound:6.0f} {times[0]:6.0f} {idle[0]:5.0%} {times[1]:8.0f} {idle[1]:5.0%}"
        )
        rows.append({"cores": cores, "bound": bound, "known": times[0], "unknown": times[1]})
    write_report(OUT, options, work=work, chain=chain, seconds=rows)


if __name__ == "__main__":
    run_command(main)
