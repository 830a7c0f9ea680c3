"""`python -m ddl.timeline FILE`: the slowest rank, host and link, and who waited for whom.

    DDL_TIMELINE=job.json ddlrun -H node1:4,node2:4 python train.py
    python -m ddl.timeline job.json

A job that fails leaves a part for each rank, FILE.rank-N, in place of FILE. The parts are read
together, and `--join` makes one file of them, for a viewer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from ddl.timeline.reading import TimelineError, Trace, join, read
from ddl.timeline.summary import find_links, find_waits

_MOST_LINES = 10
"""Pairs of ranks, and failed calls, that are shown."""

_LEAST_S = 0.001
"""Less waiting is not shown."""


def facts_of(trace: Trace) -> dict[str, Any]:
    """What the report says, in seconds and bytes per second; the greatest first."""
    host_of = {number: rank.host for number, rank in trace.ranks.items()}
    waits, links = find_waits(trace), find_links(trace)
    waited = [time for _, time in waits.between.items()]
    all_ranks = [ranks for rank in trace.ranks.values() for ranks in rank.groups.values()]
    begins = [call.begin for call in trace.calls]
    ends = [call.end for call in trace.calls]
    return {
        "ranks": len(trace.ranks),
        "lost_ranks": sorted(set().union(*all_ranks) - trace.ranks.keys()),
        "hosts": len(set(host_of.values())),
        "seconds": (max(ends) - min(begins)) / 1e6 if begins else 0.0,
        "calls": waits.complete,
        "clock_error_us": max(rank.clock_error for rank in trace.ranks.values()),
        "dropped_events": sum(rank.dropped for rank in trace.ranks.values()),
        "in_calls_s": waits.total / 1e6,
        "waiting_s": sum(waited) / 1e6,
        "waited_for_rank": [
            {
                **{"rank": rank, "host": host_of[rank], "seconds": time / 1e6},
                **{"last": waits.last[rank], "longest_s": waits.longest[rank] / 1e6},
            }
            for rank, time in waits.waited_for().most_common()
        ],
        "waited_for_host": [
            {"host": host, "seconds": time / 1e6}
            for host, time in waits.waited_for_host(host_of).most_common()
        ],
        "waits": [
            {"rank": who, "for": last, "seconds": time / 1e6}
            for (who, last), time in waits.between.most_common()
        ],
        "links": [
            {"from": hosts[0], "to": hosts[1], "bytes": link.nbytes, "rate": link.rate}
            for hosts, link in sorted(links.items(), key=lambda item: item[1].rate)
        ],
        "failed": [
            {"rank": call.rank, "call": call.name, "seconds": (call.end - call.begin) / 1e6}
            for call in sorted(trace.calls, key=lambda call: call.begin)
            if call.has_failed
        ],
    }


def report(facts: dict[str, Any]) -> list[str]:
    """The lines for people."""
    lines = [
        f"{facts['ranks']} rank(s) on {facts['hosts']} host(s), {facts['seconds']:.3f} s, "
        f"{facts['calls']} calls, clocks within {facts['clock_error_us']:.0f} us"
    ]
    if facts["dropped_events"]:
        lines.append(f"{facts['dropped_events']} older events are missing: the latest are kept")
    if facts["lost_ranks"]:
        lost = ", ".join(map(str, facts["lost_ranks"][:_MOST_LINES]))
        lines.append(f"{len(facts['lost_ranks'])} rank(s) left no events: {lost}")
    share = facts["waiting_s"] / facts["in_calls_s"] if facts["in_calls_s"] else 0.0
    lines.append(
        f"all ranks together: {facts['in_calls_s']:.3f} s in collectives, {share:.0%} of it "
        "waiting for another rank to come"
    )
    for first in facts["waited_for_rank"][:1]:
        lines.append(
            f"slowest rank: {first['rank']} (host {first['host']}): others waited "
            f"{first['seconds']:.3f} s for it, last in {first['last']} calls, "
            f"{first['longest_s']:.3f} s at most in one"
        )
        # Ranks start at different times, so who came late once may lead the list.
        often = max(facts["waited_for_rank"], key=lambda rank: rank["last"])
        if often["last"] > first["last"]:
            lines.append(
                f"last most often: {often['rank']} (host {often['host']}): in {often['last']} "
                f"calls, others waited {often['seconds']:.3f} s for it"
            )
    for first in facts["waited_for_host"][:1]:
        lines.append(
            f"slowest host: {first['host']}: other hosts' ranks waited {first['seconds']:.3f} s"
        )
    if len(facts["links"]) > 1:
        first = facts["links"][0]
        median = statistics.median(link["rate"] for link in facts["links"])
        lines.append(
            f"slowest link: {first['from']} to {first['to']}: {first['rate'] / 1e6:.1f} MB/s; the "
            f"median of {len(facts['links'])} is {median / 1e6:.1f} MB/s"
        )
    lines += [
        f"rank {wait['rank']} waited {wait['seconds']:.3f} s for rank {wait['for']}"
        for wait in facts["waits"][:_MOST_LINES]
        if wait["seconds"] >= _LEAST_S
    ]
    lines += [
        f"rank {failed['rank']}: {failed['call']} failed after {failed['seconds']:.3f} s"
        for failed in facts["failed"][:_MOST_LINES]
    ]
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Print the report; return the exit status."""
    ask = argparse.ArgumentParser(
        prog="python -m ddl.timeline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ask.add_argument("file", type=Path, help="as DDL_TIMELINE or -timeline named it")
    ask.add_argument("--json", action="store_true", help="print JSON")
    ask.add_argument("--join", action="store_true", help="make FILE of the parts of single ranks")
    options = ask.parse_args(arguments)
    try:
        if options.join:
            print(f"{options.file} has the parts of {join(options.file)} rank(s)")
            return 0
        facts = facts_of(read(options.file))
    except TimelineError as error:
        print(f"ddl.timeline: {error}", file=sys.stderr)
        return 1
    print(json.dumps(facts, indent=2) if options.json else "\n".join(report(facts)))
    return 0
