"""Who waited for whom, and how fast the links were: from the events of a timeline."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ddl.timeline.reading import Call, Message, Trace

_LEAST_BYTES = 1 << 20
"""A link that has carried less is not compared with others."""


@dataclass
class Waits:
    """Waiting in collectives, in microseconds."""

    complete: int = 0  # calls of which all ranks' events are there
    total: float = 0.0  # of all ranks' time in these calls
    between: Counter[tuple[int, int]] = field(default_factory=Counter)  # (who, for whom)
    last: Counter[int] = field(default_factory=Counter)  # calls to which a rank came last
    # the most waiting for a rank in one call
    longest: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def waited_for(self) -> Counter[int]:
        """How long all others waited for each rank."""
        sums: Counter[int] = Counter()
        for (_, last), time in self.between.items():
            sums[last] += time
        return sums

    def waited_for_host(self, host_of: Mapping[int, str]) -> Counter[str]:
        """How long the ranks of other hosts waited for each host's ranks."""
        sums: Counter[str] = Counter()
        for (who, last), time in self.between.items():
            if host_of[who] != host_of[last]:
                sums[host_of[last]] += time
        return sums


def find_waits(trace: Trace) -> Waits:
    """A rank that has come to a call waits for the last one that comes, or until the call is over.

    Ranks that have left no events do not count. Times of two hosts that differ by less than the
    error of their clocks are taken as the same.
    """
    members = {
        name: trace.ranks.keys() & ranks
        for rank in trace.ranks.values()
        for name, ranks in rank.groups.items()
    }
    calls: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in trace.calls:
        calls[call.group, call.number].append(call)
    waits = Waits()
    for (group, _), of_ranks in calls.items():
        if len(of_ranks) != len(members.get(group, ())):
            continue
        waits.complete += 1
        waits.total += sum(call.end - call.begin for call in of_ranks)
        last = max(of_ranks, key=lambda call: call.begin)
        of_call = 0.0
        for call in of_ranks:
            waited = min(last.begin, call.end) - call.begin
            if waited > _error(trace, call.rank, last.rank):
                waits.between[call.rank, last.rank] += waited  # type: ignore[assignment]
                of_call += waited
        waits.last[last.rank] += of_call > 0
        waits.longest[last.rank] = max(waits.longest[last.rank], of_call)
    return waits


@dataclass
class Link:
    """What went from one host to another."""

    nbytes: int = 0
    busy: float = 0.0  # microseconds in which something was under way

    @property
    def rate(self) -> float:
        """Bytes per second while something was under way."""
        return self.nbytes / self.busy * 1e6 if self.busy else 0.0


def find_links(trace: Trace) -> dict[tuple[str, str], Link]:
    """Links that have carried enough to be compared, by the hosts of their ends.

    A message is under way from when both sides have posted it until it has come.
    """
    ends: dict[tuple[int, int], tuple[list[Message], list[Message]]] = defaultdict(lambda: ([], []))
    for message in trace.messages:
        pair = (message.rank, message.peer)
        ends[pair[::-1] if message.is_recv else pair][message.is_recv].append(message)
    spans: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    links: dict[tuple[str, str], Link] = defaultdict(Link)
    for (source, dest), (sent, come) in ends.items():
        if source not in trace.ranks or dest not in trace.ranks:
            continue
        hosts = (trace.ranks[source].host, trace.ranks[dest].host)
        if hosts[0] == hosts[1]:
            continue
        for a, b in _pairs(sent, come):
            begin = max(a.begin, b.begin)
            if b.end > begin:
                spans[hosts].append((begin, b.end))
                links[hosts].nbytes += a.nbytes
    for hosts, of_link in spans.items():
        links[hosts].busy = _length_of_union(of_link)
    return {hosts: link for hosts, link in links.items() if link.nbytes >= _LEAST_BYTES}


def _error(trace: Trace, one: int, other: int) -> float:
    a, b = trace.ranks[one], trace.ranks[other]
    return a.clock_error + b.clock_error if a.host != b.host else 0.0


def _pairs(sent: list[Message], come: list[Message]) -> Iterable[tuple[Message, Message]]:
    """The two sides of each message: from the last ones back, since old ones may be missing."""
    waiting: dict[int, list[Message]] = defaultdict(list)
    for message in sorted(sent, key=lambda m: m.begin):
        waiting[message.nbytes].append(message)
    for message in sorted(come, key=lambda m: m.begin, reverse=True):
        if waiting[message.nbytes]:
            yield waiting[message.nbytes].pop(), message


def _length_of_union(spans: list[tuple[float, float]]) -> float:
    length, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        length += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return length
