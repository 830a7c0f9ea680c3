"""How fast a collective can be at best in a layout: what must cross each cut of the network."""

from __future__ import annotations

from bench.lab.layout import Layout

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
    """The seconds that one of JAX's collectives takes at least.

    A cut has ranks inside and outside. What `all_gather` gives must come in from all outside, and
    leave for them; `psum_scatter` is the same turned around. In `all_to_all`, each rank has
    something for each.

    Args:
        collective: one of `COLLECTIVES`.
        nbytes: what each rank has, or what `all_gather` gives it.
    """
    if collective == "psum":
        return lower_bound(layout, nbytes)
    n = layout.ranks
    cuts = [(layout.ranks_per_host, layout.mbit(host)) for host in range(layout.hosts)]
    if layout.uplink_mbit and len(layout.racks) > 1:
        cuts += [(hosts * layout.ranks_per_host, layout.uplink_mbit) for hosts in layout.racks]

    def crosses(inside: int) -> float:
        outside = n - inside
        shares = inside * outside if collective == "all_to_all" else max(inside, outside)
        return nbytes * shares / n

    return max(_seconds(crosses(inside), mbit) for inside, mbit in cuts)


def _all(nbytes: int, mbits: list[float]) -> float:
    """2(n-1) times the buffer, over all links of a level together."""
    return _seconds(2 * (len(mbits) - 1) * nbytes, sum(mbits))


def _seconds(nbytes: float, mbit: float) -> float:
    return nbytes * 8 / (mbit * 1e6 * GOODPUT)
