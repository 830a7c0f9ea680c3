"""`ddlrun -probe FILE -H …`: measure the links between hosts, and write them as a topology file.

Each host has one rank. Every pair of hosts exchanges messages alone, long enough to be past the
buffers of the network. Two hosts are in one rack if they reach each other about as fast as the
slower of the two can at best. Then all hosts of a rack send at once, which shows the bandwidth of
its uplink. That second step finds an uplink that one pair cannot fill only if the first has found
the racks.

Other work of a machine holds a transfer up, so the faster of two measurements is the better one. A
measurement is repeated if others contradict it: in a tree, no pair is slower than the way round by
a third host.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import ddl
from ddl import _core
from ddl.errors import check

Pair = tuple[int, int]
"""Two hosts, by their indices."""

LONG_ENOUGH = 0.05
"""Seconds: a transfer that takes this long is a measurement."""

LEAST, MOST = 64 << 10, 64 << 20  # bytes of a transfer
PINGS = 20
SAME_RACK = 0.75
"""Share of the slower host's best rate that two hosts of one rack have between them."""
OF_A_KIND = 1.2
"""Rates that differ by less are measurements of one: else the faster links would get more to do."""
PLAUSIBLE = 1.1
"""The rate of a transfer's later part may be so many times that of the whole."""
IN_DOUBT = 0.85
"""A pair with less than this share of the rate by way of a third host was held up."""
CHANCES = 3
"""How often a pair that seems to have been held up is measured again."""
UNSEEN = 0.9
"""An uplink that carries this share of what its hosts can send together is no bottleneck."""


@dataclass
class Group:
    """Hosts that are near each other."""

    hosts: list[int] = field(default_factory=list)
    bandwidth: float = 0.0  # bytes/s of the uplink; 0: it does not hold its hosts back


class Wire:
    """Messages between ranks of the world, one a host."""

    def __init__(self) -> None:
        self.rank = ddl.rank()
        self.size = ddl.size()
        self._data = np.zeros(MOST, np.uint8)

    def send(self, nbytes: int, dest: int) -> None:
        """Returns when the bytes are out of our hands."""
        check(_core.send(0, self._data.ctypes.data, nbytes, dest, 0))

    def recv(self, nbytes: int, source: int) -> None:
        """Returns when the bytes are here."""
        check(_core.recv(0, self._data.ctypes.data, nbytes, source, 0))

    def share(self, value: float) -> list[float]:
        """Every rank's `value`, by rank."""
        shared: list[float] = ddl.allgather(np.array([value]))[:, 0].tolist()
        return shared

    def latency(self, a: int, b: int) -> float:
        """Seconds one way, the median of PINGS; on all ranks."""
        times = []
        for _ in range(PINGS):
            begin = time.perf_counter()
            if self.rank == a:
                self.send(1, b)
                self.recv(1, b)
            elif self.rank == b:
                self.recv(1, a)
                self.send(1, a)
            times.append((time.perf_counter() - begin) / 2)
        return self.share(statistics.median(times))[a]

    def rates(self, pairs: list[Pair]) -> list[float]:
        """Bytes/s of pairs (sender, receiver) that transfer at the same time; on all ranks.

        A rank is in one pair at most. The size doubles until the slowest transfer is long enough.
        The rate is that of the difference to the transfer before, since both have the bytes that
        buffers and shapers take at once.
        """
        nbytes, last_nbytes = LEAST, 0
        last = [0.0] * self.size
        while True:
            ddl.barrier()
            begin = time.perf_counter()
            for sender, receiver in pairs:
                if self.rank == sender:
                    self.send(nbytes, receiver)
                    self.recv(1, receiver)
                elif self.rank == receiver:
                    self.recv(nbytes, sender)
                    self.send(1, sender)
            times = self.share(time.perf_counter() - begin)
            slowest = max(times[sender] for sender, _ in pairs)
            if slowest >= LONG_ENOUGH or 2 * nbytes > MOST:
                more = nbytes - last_nbytes
                return [rate_of(nbytes, times[s], more, times[s] - last[s]) for s, _ in pairs]
            last, last_nbytes = times, nbytes
            # Straight to about the right size, doubling at least.
            wanted = nbytes * LONG_ENOUGH / max(slowest, 1e-6)
            nbytes = min(MOST, max(2 * nbytes, int(wanted)))


def rate_of(nbytes: int, seconds: float, more: int, longer: float) -> float:
    """Bytes/s of a transfer that had so much more than the one before, and took so much longer.

    Buffers and shapers take some bytes at once, so the whole looks faster than the difference. If
    the difference is the faster one, the transfer before was held up, and only the whole counts.
    """
    whole = nbytes / seconds
    return whole if longer <= 0 or more / longer > PLAUSIBLE * whole else more / longer


def in_doubt(rates: dict[Pair, float], n_hosts: int) -> list[Pair]:
    """The pairs that are slower than the way round by a third host allows.

    The way round has all links of the tree that are between the two hosts.
    """

    def rate(a: int, b: int) -> float:
        return rates[min(a, b), max(a, b)]

    def is_in_doubt(a: int, b: int) -> bool:
        ways = (min(rate(a, c), rate(c, b)) for c in range(n_hosts) if c not in (a, b))
        return rate(a, b) < IN_DOUBT * max(ways, default=0.0)

    return [pair for pair in rates if is_in_doubt(*pair)]


def measure_pairs(n_hosts: int, measure: Callable[[Pair], float]) -> dict[Pair, float]:
    """Bytes/s of every pair (a, b), a < b; measured again where that is in doubt.

    The pairs of one host are apart in time, so that not all of them are held up at once.
    """
    pairs = itertools.combinations(range(n_hosts), 2)
    rates = {pair: measure(pair) for pair in sorted(pairs, key=lambda pair: pair[1] - pair[0])}
    for _ in range(CHANCES):
        for pair in in_doubt(rates, n_hosts):
            rates[pair] = max(rates[pair], measure(pair))
    return rates


def best_rates(rates: dict[Pair, float], n_hosts: int) -> list[float]:
    """The best rate of each host with any other: bytes/s, by host."""
    return [max(r for pair, r in rates.items() if host in pair) for host in range(n_hosts)]


def of_a_kind(rates: list[float]) -> list[float]:
    """The rates, but each the median of those that are of its kind."""
    kinds: list[list[int]] = []
    for index in sorted(range(len(rates)), key=lambda index: rates[index]):
        if not kinds or rates[index] > OF_A_KIND * rates[kinds[-1][0]]:
            kinds.append([])
        kinds[-1].append(index)
    found = list(rates)
    for kind in kinds:
        middle = statistics.median(rates[index] for index in kind)
        for index in kind:
            found[index] = middle
    return found


def find_groups(
    rates: dict[Pair, float], n_hosts: int, rates_together: Callable[[list[Pair]], list[float]]
) -> list[Group]:
    """Groups of hosts that reach each other at (nearly) their own rate, by their lowest host.

    A host whose own rate is less than a group's is slow, or alone behind an uplink. It belongs to
    the group if it does not share the group's uplink with others that send to the group. Without
    others, or without two hosts to send to, this cannot be told, and makes no difference.

    Args:
        rates: bytes/s of every pair (a, b), a < b.
        rates_together: bytes/s of pairs (sender, receiver) that transfer at the same time.
    """
    groups = _Grouping(rates, n_hosts, rates_together).groups
    for group in groups:
        group.hosts.sort()
    return sorted(groups, key=lambda group: group.hosts[0])


class _Grouping:
    """The groups so far, and the hosts that have none yet."""

    def __init__(
        self,
        rates: dict[Pair, float],
        n_hosts: int,
        rates_together: Callable[[list[Pair]], list[float]],
    ) -> None:
        self._rates = rates
        self._rates_together = rates_together
        self._best = best_rates(rates, n_hosts)
        self.groups: list[Group] = []
        # Hosts that tell the groups apart come first, and the fastest among these.
        self._waiting = sorted(
            range(n_hosts), key=lambda host: (self._is_between(host, n_hosts), -self._best[host])
        )
        while self._waiting:
            self._assign(self._waiting.pop(0))

    def _assign(self, host: int) -> None:
        """Put the host into its group, or into one of its own."""
        among = [group for group in self.groups if self._is_near(host, group)]
        if len(among) > 1 or any(self._is_slower(host, group) for group in among):
            among = [group for group in among if self._is_inside(host, group)]
        if among:
            among[0].hosts.append(host)
        else:
            self.groups.append(Group([host]))

    def _rate(self, a: int, b: int) -> float:
        return self._rates[min(a, b), max(a, b)]

    def _are_near(self, a: int, b: int) -> bool:
        return self._rate(a, b) >= SAME_RACK * min(self._best[a], self._best[b])

    def _is_near(self, host: int, group: Group) -> bool:
        """Whether the host is near most of the group's."""
        return 2 * sum(self._are_near(host, other) for other in group.hosts) > len(group.hosts)

    def _is_between(self, host: int, n_hosts: int) -> bool:
        """Whether hosts that are not near each other are near this one."""
        near = [other for other in range(n_hosts) if other != host and self._are_near(host, other)]
        return not all(self._are_near(a, b) for a, b in itertools.combinations(near, 2))

    def _is_slower(self, host: int, group: Group) -> bool:
        """Whether it holds back, by its own link or by an uplink, the group's fastest hosts."""
        return any(
            self._rate(host, other) < SAME_RACK * self._best[other] for other in group.hosts[:2]
        )

    def _is_inside(self, host: int, group: Group) -> bool:
        """Whether the host and any of elsewhere can send to the group without sharing a link."""
        if len(group.hosts) < 2:
            return False
        others = [other.hosts[0] for other in self.groups if other is not group]
        others += [
            other for other in self._waiting if other != host and self._is_slower(other, group)
        ]
        for other in others:
            pairs = [(host, group.hosts[0]), (other, group.hosts[1])]
            alone = sum(self._rate(*pair) for pair in pairs)
            if sum(self._rates_together(pairs)) < UNSEEN * alone:
                return False
        return True


def measure_uplinks(
    groups: list[Group], best: list[float], rates_together: Callable[[list[Pair]], list[float]]
) -> None:
    """Let each group's hosts send to the other groups' at once, and set its uplink's bandwidth.

    The better of two measurements counts, or the best of some more where another uplink is faster.
    """

    def pairs_of(group: Group) -> list[Pair]:
        others = [host for other in groups if other is not group for host in other.hosts]
        return list(zip(group.hosts, others, strict=False))

    def carried(group: Group) -> float:
        # Pairs that are done early leave the uplink to the others, so only the last one's time is
        # fair.
        pairs = pairs_of(group)
        return len(pairs) * min(rates_together(pairs))

    together = [max(carried(group), carried(group)) for group in groups]
    for _ in range(CHANCES):
        for number, group in enumerate(groups):
            if OF_A_KIND * together[number] < max(together):
                together[number] = max(together[number], carried(group))
    for group, bandwidth in zip(groups, together, strict=True):
        if bandwidth < UNSEEN * sum(best[host] for host, _ in pairs_of(group)):
            group.bandwidth = bandwidth


def to_yaml(names: list[str], groups: list[Group], best: list[float], latency: float) -> str:
    """The topology file. Strings are written as JSON, which YAML reads."""

    def host(index: int, indent: str) -> str:
        return (
            f"{indent}- {{host: {json.dumps(names[index])}, "
            f"bandwidth: {best[index] * 8e-9:.4g}, latency: {latency * 1e6:.3g}}}\n"
        )

    lines = ["# measured by ddlrun -probe; Gbit/s and us, of the link to the parent\n"]
    lines.append("name: cluster\nchildren:\n")
    for number, group in enumerate(groups):
        if len(groups) == 1 or len(group.hosts) == 1:
            lines += [host(index, "") for index in group.hosts]
            continue
        lines.append(f"- name: rack{number}\n")
        if group.bandwidth:
            lines.append(f"  bandwidth: {group.bandwidth * 8e-9:.4g}\n")
        lines.append("  children:\n")
        lines += [host(index, "  ") for index in group.hosts]
    return "".join(lines)


def probe() -> str:
    """Measure; the topology file's text on every rank. Needs `ddl.init` and one rank a host.

    Raises:
        ddl.DDLError: a host did not answer.
        ddl.DDLValueError: fewer than two hosts, or two ranks on one.
    """
    wire = Wire()
    names = [ddl.host_name(rank) for rank in range(wire.size)]
    if wire.size < 2 or ddl.num_hosts() != wire.size:
        raise ddl.DDLValueError(
            f"the probe needs two hosts or more and one rank on each, not {wire.size} ranks on "
            f"{ddl.num_hosts()} host(s)",
            ddl.Result.ARGUMENT,
        )
    rates = measure_pairs(wire.size, lambda pair: wire.rates([pair])[0])
    latency = min(wire.latency(*pair) for pair in itertools.islice(rates, wire.size))
    best = best_rates(rates, wire.size)
    groups = find_groups(rates, wire.size, wire.rates)
    if len(groups) > 1:
        measure_uplinks(groups, best, wire.rates)
    # A host alone behind an uplink has a link like the racks'.
    rates_found = of_a_kind(best + [group.bandwidth for group in groups])
    for group, bandwidth in zip(groups, rates_found[wire.size :], strict=True):
        group.bandwidth = bandwidth
    return to_yaml(names, groups, rates_found[: wire.size], latency)


def main(arguments: list[str] | None = None) -> int:
    """Write the file on rank 0; the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    if len(words) != 1:
        print("usage: ddlrun -probe FILE -H h1,h2", file=sys.stderr)
        return 2
    try:
        ddl.init()
        begin = time.perf_counter()
        text = probe()
        is_first = ddl.rank() == 0
        n_hosts = ddl.size()
        ddl.finalize()
    except ddl.DDLError as error:
        # All ranks find a wrong layout; only those that see it can tell of a lost host.
        if not isinstance(error, ddl.DDLValueError) or ddl.rank() == 0:
            print(f"ddl.probe: {error}", file=sys.stderr)
        return 1
    if is_first:
        try:
            Path(words[0]).write_text(text, encoding="utf-8")
        except OSError as error:
            print(f"ddl.probe: cannot write {words[0]}: {error.strerror}", file=sys.stderr)
            return 1
        print(f"{n_hosts} hosts measured in {time.perf_counter() - begin:.1f} s: {words[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
