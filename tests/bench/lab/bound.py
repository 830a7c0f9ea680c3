"""How fast a collective can be at best in a layout: what must cross each cut of the network."""

from __future__ import annotations

from collections.abc import Sequence

from bench.lab.layout import Layout, rank_order

GOODPUT = 1448 / 1514
"""The share of a link's rate that is payload: TCP with timestamps in Ethernet frames of 1514 bytes
(what tc counts), 95.6%; measured 95.7%."""

COLLECTIVES = ("psum", "all_gather", "psum_scatter", "all_to_all")
"""Those of JAX that have a bound here."""


def bounds(layout: Layout, nbytes: int) -> dict[str, float]:
    """The seconds that an allreduce of `nbytes` takes at least, for each reason.

    Each cut that separates ranks from ranks is crossed by at least `nbytes` in each direction: the
    sum of one side in, the sum of the other out. And over all nodes of a level (hosts, or racks),
    each element is sent at least n-1 times as a partial sum and n-1 times as the result (Patarasuk
    and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). Ranks
    that share a host cost nothing here.
    """
    hosts = [layout.mbit(host) for host in range(layout.hosts)]
    found = {"a host's link": _seconds(nbytes, min(hosts)), "all hosts": _all(nbytes, hosts)}
    if len(layout.racks) > 1 and layout.uplink_mbit:
        uplinks = [layout.uplink_mbit] * len(layout.racks)
        found["a rack's uplink"] = _seconds(nbytes, min(uplinks))
        found["all racks"] = _all(nbytes, uplinks)
    return found


def lower_bound(layout: Layout, nbytes: int) -> float:
    """The seconds that an allreduce of `nbytes` takes at least."""
    return max(bounds(layout, nbytes).values())


def bound_of(collective: str, layout: Layout, nbytes: int) -> float:
    """The seconds that a collective takes at least.

    A cut has ranks inside and outside. What `all_gather` gives must come in from all outside, and
    leave for them; `psum_scatter` is the same turned around. In `all_to_all`, each rank has
    something for each. A `broadcast` crosses each cut once.

    Args:
        collective: one of `COLLECTIVES`, or "broadcast".
        nbytes: what each rank has, or what `all_gather` or `broadcast` gives it.
    """
    if collective == "psum":
        return lower_bound(layout, nbytes)
    n = layout.ranks

    def crosses(inside: int) -> float:
        outside = n - inside
        if collective == "broadcast":
            return nbytes
        shares = inside * outside if collective == "all_to_all" else max(inside, outside)
        return nbytes * shares / n

    cuts = _cuts(layout)
    return max(_seconds(crosses(len(hosts) * layout.ranks_per_host), mbit) for hosts, mbit in cuts)


def exchange_bound(layout: Layout, order: str, sizes: Sequence[Sequence[float]]) -> float:
    """The seconds that an exchange takes at least in which each rank has another size for each.

    Args:
        order: of the ranks, as `rank_order` takes it.
        sizes: bytes, by sender and receiver.
    """
    at = rank_order(layout, order)
    most = 0.0
    for hosts, mbit in _cuts(layout):
        inside = [rank for rank, host in enumerate(at) if host in hosts]
        outside = [rank for rank, host in enumerate(at) if host not in hosts]
        leaves = sum(sizes[a][b] for a in inside for b in outside)
        comes = sum(sizes[b][a] for a in inside for b in outside)
        most = max(most, _seconds(max(leaves, comes), mbit))
    return most


def _cuts(layout: Layout) -> list[tuple[range, float]]:
    """The hosts on one side of each link that separates some from the others, and its rate."""
    cuts = [(range(host, host + 1), layout.mbit(host)) for host in range(layout.hosts)]
    if layout.uplink_mbit and len(layout.racks) > 1:
        racks = [layout.in_rack(rack) for rack in range(len(layout.racks))]
        cuts += [(hosts, layout.uplink_mbit) for hosts in racks]
    return cuts


def _all(nbytes: int, mbits: list[float]) -> float:
    """2(n-1) times the buffer, over all links of a level together."""
    return _seconds(2 * (len(mbits) - 1) * nbytes, sum(mbits))


def _seconds(nbytes: float, mbit: float) -> float:
    return nbytes * 8 / (mbit * 1e6 * GOODPUT)
