"""A tree of hosts, and the schedules on it, as text: for `ddl-sim` and `ddlrun -show_topology`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from ddl._core import Chunking, Tree, Wire, predict

MOST = 8  # hosts or groups that are written out
LINKS_UNKNOWN = (
    "Bandwidths are not known for every host, so no times: give a topology file that has them\n"
    "(`ddlrun -probe FILE` measures one)."
)


@dataclass(frozen=True)
class Row:
    """The library's schedule for one size; times in seconds."""

    nbytes: int
    schedule: str
    steps: int
    messages: int
    chunk: int
    chunks: int
    seconds: float
    bound: float
    limit: str

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def parse_size(text: str) -> int:
    """Bytes, of "4096", "64K", "4M" or "1G" (powers of 1024); ValueError on others."""
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper())
    digits = text if unit is None else text[:-1]
    if not (digits.isascii() and digits.isdigit()) or int(digits) == 0:
        raise ValueError(f"'{text}' is not a size such as 4096, 64K, 4M or 1G")
    return int(digits) * (unit or 1)


def make_rows(
    tree: Tree, sizes: Iterable[int], schedule: str, chunking: Chunking, wire: Wire
) -> list[Row]:
    """A row for each size. ValueError: the word for the schedule is wrong."""
    rows = []
    for nbytes in sizes:
        name, found = predict(tree, nbytes, schedule, chunking, wire)
        rows.append(
            Row(
                nbytes=nbytes,
                schedule=name,
                steps=found.steps,
                messages=found.messages,
                chunk=found.chunk,
                chunks=found.chunks,
                seconds=found.seconds,
                bound=found.bound,
                limit=found.limit,
            )
        )
    return rows


def describe_rows(rows: list[Row], with_times: bool) -> str:
    """The table. Messages are those that the busiest rank sends for a chunk."""
    head = ["size", "schedule", "steps", "messages", "chunks"]
    lines = [[*head, "predicted ms", "bound ms", "limited by"] if with_times else head]
    for row in rows:
        chunks = f"{row.chunks} x {size_text(row.chunk)}"
        line = [size_text(row.nbytes), row.schedule, str(row.steps), str(row.messages), chunks]
        if with_times:
            line += [f"{1e3 * row.seconds:.4g}", f"{1e3 * row.bound:.4g}", row.limit]
        lines.append(line)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join(padded)


def describe_tree(tree: Tree) -> str:
    """The tree with its links; hosts that are alike share a line."""
    return "\n".join(_tree_lines(tree, ""))


def size_text(nbytes: int) -> str:
    """A size as 4 MiB, 64 KiB or 100 B."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes} B"


def _tree_lines(node: Tree, indent: str) -> Iterator[str]:
    yield f"{indent}{node.name}{_link_text(node, '')}"
    indent += "  "
    shown = 0
    children = node.children
    for (is_host, *_), same in itertools.groupby(children, _kind):
        alike = list(same)
        if is_host:
            yield f"{indent}{_names_text(alike)}{_link_text(alike[0], ' each')}"
            continue
        for child in alike:
            if shown < MOST:
                yield from _tree_lines(child, indent)
            shown += 1
    if shown > MOST:
        yield f"{indent}… and {shown - MOST} more groups"


def _kind(node: Tree) -> tuple[bool, float, float, int]:
    return (not node.children, node.bandwidth, node.latency, node.sockets)


def _names_text(hosts: list[Tree]) -> str:
    if len(hosts) <= MOST:
        return " ".join(host.name for host in hosts)
    return f"{hosts[0].name} … {hosts[-1].name} ({len(hosts)} hosts)"


def _link_text(node: Tree, each: str) -> str:
    parts = []
    if node.bandwidth:
        parts.append(f"{node.bandwidth * 8e-9:.4g} Gbit/s")
    if node.latency:
        parts.append(f"{node.latency * 1e6:.4g} us")
    if node.sockets:
        parts.append(f"{node.sockets} socket{'s' * (node.sockets > 1)}")
    return f": {', '.join(parts)}{each}" if parts else ""
