"""The rank program of the links part: how fast hosts and the uplinks of their racks are.

    ddlrun -H node1,node2 -accelerators 1 python -m ddl_ce_smoke.links

A rank on each host. Pairs of hosts exchange messages as in `ddl.probe`. A host's rate is that with
the best of its peers. Racks are hosts that reach each other at their own rates, and an uplink's
rate is that of all its hosts together. `judge_links` names the ones that are below their kind.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddl_ce_smoke.model import Case, Link

if TYPE_CHECKING:
    from ddl.probe import Group, Pair, Wire

#: A link with less than this share of what its kind reaches is named.
LEAST = 0.9
#: How often what seems slow is measured again: other work holds a transfer up.
CHANCES = 3
#: Above so many hosts, not all pairs are measured, and racks not found.
FEW = 32


def read_reference(path: Path) -> dict[str, float]:
    """The rates of a run's report.json (bytes/s) by the links' names.

    Raises:
        ValueError: it is no report of a run over several hosts; the message names the file.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["links"]
        found = {str(row["name"]): float(row["rate"]) for row in rows}
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no report.json of this suite") from error
    if not found:
        raise ValueError(f"{path} has no links: it is not of a run over several hosts")
    return found


def judge_links(links: Sequence[Link], reference: Mapping[str, float]) -> list[Case]:
    """A case for each link.

    A link is compared with itself in the reference if that has it. Else it is compared with the
    median of its kind, if there are three at least: of two, none can say which is slow.
    """
    middle: dict[str, float] = {}
    for kind in {link.kind for link in links}:
        rates = [link.rate for link in links if link.kind == kind]
        middle[kind] = statistics.median(rates) if len(rates) > 2 else 0.0
    return [_judge(link, reference.get(link.name), middle[link.kind]) for link in links]


def _judge(link: Link, before: float | None, middle: float) -> Case:
    says = f"{_gbit(link.rate)} Gbit/s"
    due, of_what = (middle, f"most {link.kind}s reach") if before is None else (before, "reference")
    if link.rate >= LEAST * due:
        return Case(link.name, "passed", message=says)
    problem = f"{link.name}: {says}, {link.rate / due:.0%} of {_gbit(due)} ({of_what})"
    return Case(link.name, "failed", message=problem)


def _gbit(rate: float) -> str:
    return f"{rate * 8e-9:.3g}"


def host_rates(
    n_hosts: int, rates: dict[Pair, float], measure: Callable[[Pair], float]
) -> list[float]:
    """The best rate of each host, by host: bytes/s. Measures slow ones again, into `rates`."""
    from ddl.probe import best_rates

    for _ in range(CHANCES):
        best = best_rates(rates, n_hosts)
        slow = [host for host in range(n_hosts) if best[host] < LEAST * statistics.median(best)]
        for pair in [pair for pair in rates if set(pair) & set(slow)]:
            rates[pair] = max(rates[pair], measure(pair))
    return best_rates(rates, n_hosts)


def some_pairs(n_hosts: int) -> list[Pair]:
    """Three peers for each host, near and far: as many as there are hosts, three times."""
    found = {
        (min(host, peer), max(host, peer))
        for host in range(n_hosts)
        for step in (1, 2, n_hosts // 2)
        if (peer := (host + step) % n_hosts) != host
    }
    return sorted(found)


def uplink_rates(groups: Sequence[Group], wire: Wire) -> list[float]:
    """Of each group, the bytes/s of its hosts to all others together; the best of some."""

    def carried(group: Group) -> float:
        others = [host for other in groups if other is not group for host in other.hosts]
        pairs = list(zip(group.hosts, others, strict=False))
        return len(pairs) * min(wire.rates(pairs))

    return [max(carried(group) for _ in range(CHANCES)) for group in groups]


def measure() -> list[Link]:
    """The links between the hosts of this job; collective, with ddl running on one rank a host."""
    import ddl
    from ddl.probe import Wire, find_groups, measure_pairs

    wire = Wire()
    names = [ddl.host_name(rank) for rank in range(wire.size)]

    def alone(pair: Pair) -> float:
        return wire.rates([pair])[0]

    if wire.size > FEW:
        rates = {pair: alone(pair) for pair in some_pairs(wire.size)}
    else:
        rates = measure_pairs(wire.size, alone)
    best = host_rates(wire.size, rates, alone)
    links = [Link(name, "host", rate) for name, rate in zip(names, best, strict=True)]
    groups = find_groups(rates, wire.size, wire.rates) if wire.size <= FEW else []
    if len(groups) > 1:
        for group, rate in zip(groups, uplink_rates(groups, wire), strict=True):
            if len(group.hosts) > 1:
                name = f"uplink of {','.join(names[host] for host in group.hosts)}"
                links.append(Link(name, "uplink", rate))
    return links


def main(argv: Sequence[str] | None = None) -> int:
    """Runs on one rank of every host; the suite reads the journals."""
    import ddl

    from ddl_ce_smoke.rank import Rank, journal
    from ddl_ce_smoke.train import add_journal_options

    parser = argparse.ArgumentParser(prog="python -m ddl_ce_smoke.links", description=__doc__)
    add_journal_options(parser)
    args = parser.parse_args(argv)
    rank = Rank.from_environment()
    with journal(args.journal, rank) as record:
        ddl.init()
        links: list[dict[str, Any]] = [asdict(link) for link in measure()]
        for link in links if rank.index == 0 else []:
            record.write("link", **link)
        ddl.finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
