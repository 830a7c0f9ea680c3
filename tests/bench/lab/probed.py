"""What a probe can find in a layout, and how what it has found differs."""

from __future__ import annotations

from typing import Any

import yaml

from bench.lab.bound import GOODPUT
from bench.lab.layout import Layout

TOLERANCE = 0.3
"""Of a rate. A slow host's is half of the others' or less, a rack's uplink a fifth of a host's."""


def visible_racks(layout: Layout) -> list[set[frozenset[str]]]:
    """The racks that measuring can show, in any of these ways.

    A rack of one host cannot be told from a host with a slow link. Where it is the only other rack,
    nor need the first one be seen: all that shares its uplink goes to that host.
    """
    if len(layout.racks) == 1:
        return [set()]
    racks = [layout.in_rack(rack) for rack in range(len(layout.racks))]
    found = {frozenset(f"h{host}" for host in rack) for rack in racks if len(rack) > 1}
    return [found, set()] if sorted(layout.racks)[:-1] == [1] else [found]


def visible_mbit(layout: Layout, host: int) -> float:
    """What a host can reach with the best of the others."""

    def path(other: int) -> float:
        ends = min(layout.mbit(host), layout.mbit(other))
        if layout.rack_of(host) == layout.rack_of(other) or not layout.uplink_mbit:
            return ends
        return min(ends, layout.uplink_mbit)

    return max(path(other) for other in range(layout.hosts) if other != host)


def differences(layout: Layout, text: str) -> list[str]:
    """What a topology file has wrong about a layout, a line for each; nothing when it is right."""
    children: list[dict[str, Any]] = yaml.safe_load(text)["children"]
    racks = [node for node in children if "children" in node]
    hosts = [leaf for node in children for leaf in node.get("children", [node])]
    found = {frozenset(str(leaf["host"]) for leaf in rack["children"]) for rack in racks}
    wrong = []
    if found not in visible_racks(layout):
        wrong.append(f"racks {_words(found)}, not {_words(visible_racks(layout)[0])}")
    else:
        for rack in racks:
            if layout.uplink_mbit:
                rate = rack.get("bandwidth", 0) * 1000
                wrong += _rate(f"the uplink of {_words([_names(rack)])}", rate, layout.uplink_mbit)
    rates = {str(leaf["host"]): leaf["bandwidth"] * 1000 for leaf in hosts}
    for host in range(layout.hosts):
        wrong += _rate(f"h{host}", rates.get(f"h{host}", 0), visible_mbit(layout, host))
    return wrong


def _rate(what: str, found: float, mbit: float) -> list[str]:
    """Payload, as the probe measures it, of a link's rate."""
    if abs(found / (mbit * GOODPUT) - 1) <= TOLERANCE:
        return []
    return [f"{what} at {found:.0f} Mbit/s, not {mbit * GOODPUT:.0f}"]


def _names(rack: dict[str, Any]) -> frozenset[str]:
    return frozenset(str(leaf["host"]) for leaf in rack["children"])


def _words(groups: set[frozenset[str]] | list[frozenset[str]]) -> str:
    return " and ".join(sorted("+".join(sorted(group)) for group in groups)) or "none"
