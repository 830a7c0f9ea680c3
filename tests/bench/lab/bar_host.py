"""What libddl has to reach on one host, and what it reaches: the bar (bar.md)."""

from __future__ import annotations

from bench.check import Check

PEERS = ("intelmpi", "oneccl", "openmpi", "mpich", "gloo")
BEYOND_CACHES = 16 << 20
"""From this size on, `copy` is a limit for every library."""

LARGE = "One host, 2 ranks, >= 64 MiB"
MIDDLE = "One host, 2 ranks, 64 KiB - 16 MiB"
SMALL = "One host, 2 ranks, <= 4 KiB"
CROWDED = "One host, 4 ranks on 2 cores"

Medians = dict[tuple[int, int, str], float]
"""Seconds by ranks, bytes and library."""


def demands(ranks: int, nbytes: int) -> tuple[str, dict[str, float]]:
    """The bar's row, and by how much libddl must be faster than each; `copy`: the memory's rate."""
    if ranks > 2:
        return CROWDED, dict.fromkeys(PEERS, 1.0)
    if nbytes <= 4 << 10:
        return SMALL, {"openmpi": 1.0}
    if nbytes < 64 << 20:
        others = dict.fromkeys(("openmpi", "mpich", "oneccl", "gloo"), 1.4)
        return MIDDLE, {"intelmpi": 1.0, **others}
    return LARGE, {"intelmpi": 1.4, "openmpi": 3.0, "mpich": 3.0, "copy": 0.65}


def host_checks(times: Medians) -> list[Check]:
    """Everything that libddl reaches, and what it has to."""
    found = []
    for (ranks, nbytes, name), ours in sorted(times.items()):
        if name != "ddl":
            continue
        row, wanted = demands(ranks, nbytes)
        copy = times.get((ranks, nbytes, "copy"))
        for other, factor in wanted.items():
            theirs = times.get((ranks, nbytes, other))
            if theirs is None:
                continue
            limit = theirs / copy if copy and nbytes >= BEYOND_CACHES else None
            found.append(
                Check(
                    row,
                    f"{ranks} ranks, {nbytes} bytes",
                    f"{other} takes {{}} x as long",
                    theirs / ours,
                    factor,
                    reachable=limit,
                    reason=f"{other} takes {limit or 0:.2f} x as long as copying the buffer once",
                )
            )
    return found
