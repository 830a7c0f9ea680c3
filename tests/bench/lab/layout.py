"""What a cluster looks like, and in which order the ranks are started in it."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace

import yaml

SHAPES = (
    "racks-2x4",
    "racks-2x2x2",
    "racks-2x3",
    "ragged-3+1",
    "ragged-5+2",
    "slow-host",
    "flat-8",
    "flat-4x2",
)
"""The layouts that are measured by default."""


@dataclass(frozen=True)
class Layout:
    """Hosts h0, h1, .. in racks, each with a link to its rack's switch, each rack with an uplink.

    Attributes:
        name: as `parse_layout` takes it.
        racks: how many hosts each rack has; one rack is a flat network.
        host_mbit: the rate of a host's link, in each direction, Mbit/s.
        uplink_mbit: the rate of a rack's uplink, in each direction; None: as fast as the machine.
        slow: the rate of the hosts (by number) whose link has another rate.
        ranks_per_host: ranks that share a host.
    """

    name: str
    racks: tuple[int, ...]
    host_mbit: float
    uplink_mbit: float | None = None
    slow: dict[int, float] = field(default_factory=dict)
    ranks_per_host: int = 1

    def __post_init__(self) -> None:
        if not self.racks or min(self.racks) < 1 or self.ranks_per_host < 1:
            raise ValueError(f"layout {self.name}: every rack needs a host and every host a rank")
        if not 2 <= self.hosts <= 200:
            raise ValueError(f"layout {self.name}: {self.hosts} hosts; the lab has 2 to 200")
        if outside := [host for host in self.slow if not 0 <= host < self.hosts]:
            raise ValueError(f"layout {self.name}: there is no slow host {outside[0]}")

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return sum(self.racks)

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self.hosts * self.ranks_per_host

    def rack_of(self, host: int) -> int:
        """The rack that a host stands in."""
        for rack, hosts in enumerate(self.racks):
            if host < hosts:
                return rack
            host -= hosts
        raise ValueError(f"layout {self.name}: there is no host {host}")

    def in_rack(self, rack: int) -> range:
        """The hosts of a rack."""
        first = sum(self.racks[:rack])
        return range(first, first + self.racks[rack])

    def mbit(self, host: int) -> float:
        """The rate of a host's link."""
        return self.slow.get(host, self.host_mbit)


def parse_layout(name: str, host_mbit: float = 250, uplink_mbit: float = 50) -> Layout:
    """The layout of a name.

    `racks-2x4` has 2 racks of 4 hosts, `ragged-3+1` racks of 3 and of 1, `flat-8` 8 hosts in one
    rack; a further `xR` is R ranks on each host. `slow-host` is 4 hosts at twice the rate of
    others, one of them at a quarter of that. `drawn-SEED` is drawn at random: up to 4 racks, 8
    hosts, 2 ranks on each, and one slow host in every third.
    """
    base = Layout(name, (2,), host_mbit, uplink_mbit)
    if name == "slow-host":
        return replace(base, racks=(4,), host_mbit=2 * host_mbit, slow={3: host_mbit / 2})
    if match := re.fullmatch(r"racks-(\d+)x(\d+)(?:x(\d+))?", name):
        racks = (int(match[2]),) * int(match[1])
    elif match := re.fullmatch(r"ragged-(\d+)((?:\+\d+)+)(?:x(\d+))?", name):
        racks = tuple(int(n) for n in (match[1] + match[2]).split("+"))
    elif match := re.fullmatch(r"flat(-)(\d+)(?:x(\d+))?", name):
        racks = (int(match[2]),)
    elif match := re.fullmatch(r"drawn-(\d+)", name):
        return _draw(base, random.Random(int(match[1])))
    else:
        raise ValueError(f"layout {name}: not a name such as {', '.join(SHAPES)} or drawn-7")
    return replace(base, racks=racks, ranks_per_host=int(match[3] or 1))


def _draw(base: Layout, dice: random.Random) -> Layout:
    """A layout at random."""
    racks: list[int] = []
    left = dice.randint(3, 8)
    while left and len(racks) < 4:
        racks.append(dice.randint(1, left))
        left -= racks[-1]
    hosts = sum(racks)
    if hosts < 2:
        racks, hosts = [3], 3
    slow = {dice.randrange(hosts): base.host_mbit / 2} if dice.random() < 1 / 3 else {}
    ranks = dice.choice([1, 1, 2]) if hosts <= 4 else 1
    return replace(base, racks=tuple(racks), slow=slow, ranks_per_host=ranks)


def rank_order(layout: Layout, order: str) -> list[int]:
    """The host of every rank.

    Args:
        order: `sorted` fills a host, then the next of its rack; `interleaved` goes round the
            racks, and takes a host's second rank when every host has one, as a launcher does that
            spreads ranks over nodes; `random:SEED` shuffles the ranks.
    """
    if order == "sorted":
        return [host for host in range(layout.hosts) for _ in range(layout.ranks_per_host)]
    racks = [layout.in_rack(rack) for rack in range(len(layout.racks))]
    if order == "interleaved":
        turns = range(max(layout.racks))
        once = [rack[turn] for turn in turns for rack in racks if turn < len(rack)]
        return once * layout.ranks_per_host
    if match := re.fullmatch(r"random:(\d+)", order):
        hosts = rank_order(layout, "sorted")
        random.Random(int(match[1])).shuffle(hosts)
        return hosts
    raise ValueError(f"order {order}: not sorted, interleaved or random:SEED")


def topology_yaml(layout: Layout) -> str:
    """The cluster as a topology file of libddl (`DDL_OPTIONS="-topology FILE"`).

    Bandwidths are in Gbit/s and latencies in microseconds, each of the link to the parent.
    """

    def hosts(rack: int) -> list[dict[str, object]]:
        return [
            {"host": f"h{host}", "bandwidth": layout.mbit(host) / 1000, "latency": 50}
            for host in layout.in_rack(rack)
        ]

    children: list[dict[str, object]] = hosts(0)
    if len(layout.racks) > 1:
        children = []
        for rack in range(len(layout.racks)):
            uplink = (layout.uplink_mbit or layout.host_mbit * layout.racks[rack]) / 1000
            node = {"name": f"rack{rack}", "bandwidth": uplink, "latency": 50}
            children.append({**node, "children": hosts(rack)})
    text = yaml.safe_dump({"name": "cluster", "children": children}, sort_keys=False)
    return "# Gbit/s and microseconds of the link from each node to its parent\n" + text
