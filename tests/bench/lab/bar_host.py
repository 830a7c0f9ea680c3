"""What libddl has to reach on one host, and where it falls short: issue 3's "The bar"."""

from __future__ import annotations

PEERS = ("intelmpi", "oneccl", "openmpi", "mpich")


def demands(ranks: int, nbytes: int) -> dict[str, float]:
    """By how much libddl must be faster than each library; `copy` is the memory's rate."""
    if ranks > 2:
        return dict.fromkeys(PEERS, 1.0)
    if nbytes <= 4 << 10:
        return {"openmpi": 1.0}
    if nbytes < 64 << 20:
        return {"intelmpi": 1.0, "openmpi": 1.4, "mpich": 1.4}
    return {"intelmpi": 1.4, "openmpi": 3.0, "mpich": 3.0, "copy": 0.65}


def host_shortfalls(times: dict[tuple[int, int, str], float]) -> list[str]:
    """A line for everything that libddl does not reach; seconds by ranks, bytes and library."""
    lines = []
    for (ranks, nbytes, name), ours in sorted(times.items()):
        if name != "ddl":
            continue
        for other, factor in demands(ranks, nbytes).items():
            theirs = times.get((ranks, nbytes, other))
            if theirs is not None and theirs / ours < factor:
                lines.append(
                    f"{ranks} ranks, {nbytes} bytes: {other} takes {theirs / ours:.2f} x as long; "
                    f"at least {factor}"
                )
    return lines
