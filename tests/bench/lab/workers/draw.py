"""Draws lab.json or host.json, each into an SVG beside it. Runs where matplotlib is.

draw.py FILE...
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

mpl.rcParams["svg.hashsalt"] = "ddl"  # the same figures, the same file
OURS, LIMIT = "#c4261d", "#777777"

Found = dict[str, Any]


def colour(name: str, number: int) -> Any:
    """Ours stand out."""
    if name in ("copy", "exchange"):
        return LIMIT
    return OURS if name.startswith("ddl") else mpl.colormaps["tab10"]((number % 9 + 4) % 10)


def draw_lab(found: Found) -> Any:
    """The median by the lower bound, of each library in each layout, order and size."""
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in found["cells"]:
        name = f"{cell['layout']}, {cell['order']}, {cell['nbytes'] / (1 << 20):g} MiB"
        times[name][cell["peer"]] += [time / cell["bound"] for time in cell["times"]]
    peers = list(dict.fromkeys(cell["peer"] for cell in found["cells"]))
    figure, axes = plt.subplots(figsize=(10, 1 + 0.5 * len(times)), layout="constrained")
    for number, peer in enumerate(peers):
        rows = [row for row, name in enumerate(times) if times[name].get(peer)]
        ratios = [statistics.median(times[name][peer]) for name in times if times[name].get(peer)]
        marker = "D" if peer.startswith("ddl") else "o"
        filled = "full" if peer != "ddl-probe" else "none"
        axes.plot(
            ratios,
            rows,
            marker,
            color=colour(peer, number),
            label=peer,
            fillstyle=filled,
            alpha=0.8,
        )
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(times)), list(times))
    axes.invert_yaxis()
    axes.set_xscale("log")
    ticks = [1, 1.5, 2, 3, 4, 6, 8, 12]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.grid(axis="both", alpha=0.3)
    axes.set_xlabel("median time by the lower bound")
    axes.set_title("allreduce between hosts")
    axes.legend(fontsize="small")
    return figure


def draw_host(found: Found) -> Any:
    """The bytes of the buffer per second, of each library, by size; a field for each job size."""
    cells = found["cells"]
    jobs = sorted({cell["ranks"] for cell in cells})
    figure, fields = plt.subplots(
        1, len(jobs), figsize=(6 * len(jobs), 5), layout="constrained", squeeze=False, sharey=True
    )
    names = list(dict.fromkeys(cell["library"] for cell in cells))
    for axes, ranks in zip(fields[0], jobs, strict=True):
        for number, name in enumerate(names):
            points = sorted(
                (cell["bytes"], cell["bytes"] / statistics.median(cell["seconds"]) * 1e-9)
                for cell in cells
                if cell["ranks"] == ranks and cell["library"] == name and cell["seconds"]
            )
            line = {"copy": "--", "exchange": ":"}.get(name, "-")
            sizes, rates = [size for size, _ in points], [rate for _, rate in points]
            axes.plot(sizes, rates, line, color=colour(name, number), label=name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.set_xlabel("bytes")
        axes.set_title(f"allreduce on one host, {ranks} ranks")
    fields[0][0].set_ylabel("GB/s of the buffer")
    fields[0][0].legend(fontsize="small")
    return figure


def main() -> None:
    """Draws each file."""
    for word in sys.argv[1:]:
        path = Path(word)
        found = json.loads(path.read_text())
        draw = {"lab": draw_lab, "host": draw_host}[path.stem]
        figure = draw(found)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        print(f"drawn: {path.with_suffix('.svg')}")


if __name__ == "__main__":
    main()
