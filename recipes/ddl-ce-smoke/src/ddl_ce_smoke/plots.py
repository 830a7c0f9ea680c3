"""The report's plots as inline SVG that follows the page's colours.

matplotlib draws in placeholder colours, which are then replaced by CSS variables of the page: so
one drawing is right on a light and on a dark page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from ddl_ce_smoke.model import Bandwidth, Throughput, size_text

#: Placeholder colour to CSS colour: the first two series, text, frame and grid, aids.
COLOURS = {
    "#010101": "var(--first)",
    "#020202": "var(--second)",
    "#030303": "var(--ink)",
    "#040404": "var(--line)",
    "#050505": "var(--soft)",
}
FIRST, SECOND, INK, LINE, SOFT = COLOURS

STYLE: Any = {  # matplotlib types its keys one by one
    "svg.fonttype": "none",
    "svg.hashsalt": "ddl-ce-smoke",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 2,
    "lines.markersize": 5,
    "legend.frameon": False,
}


def bandwidth_plot(rows: Sequence[Bandwidth]) -> str:
    """Bus bandwidth over buffer size, a panel per number of ranks, a line per backend."""
    counts = sorted({row.ranks for row in rows})
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.4 * len(counts), 3.2), layout="constrained")
        panels = figure.subplots(1, len(counts), sharey=True, squeeze=False)[0]
        for panel, count in zip(panels, counts, strict=True):
            for colour, backend in _backends(rows):
                line = [r for r in rows if r.ranks == count and r.backend == backend]
                line.sort(key=lambda row: row.nbytes)
                panel.plot(
                    [r.nbytes for r in line],
                    [r.busbw / 1e9 for r in line],
                    color=colour,
                    marker="o",
                    label=backend,
                )
            panel.set_title(f"{count} ranks")
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            sizes = sorted({row.nbytes for row in rows})
            panel.set_xticks(sizes[:: max(1, len(sizes) // 4)])
            panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(value)))
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.yaxis.set_minor_locator(NullLocator())
            _finish(panel, "buffer")
        panels[0].set_ylabel("bus bandwidth, GB/s")
        panels[0].legend()
        return _svg(figure, "Allreduce bus bandwidth by buffer size")


def scaling_plot(rows: Sequence[Throughput]) -> str:
    """Training speed over ranks, a line per backend, beside perfect scaling."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 3.2), layout="constrained")
        panel = figure.subplots()
        counts = sorted({row.ranks for row in rows})
        for colour, backend in _backends(rows):
            line = sorted((r for r in rows if r.backend == backend), key=lambda row: row.ranks)
            speeds = [r.samples_per_second for r in line]
            panel.plot([r.ranks for r in line], speeds, color=colour, marker="o", label=backend)
            if colour == FIRST and line[0].ranks == 1:
                perfect = [speeds[0] * count for count in counts]
                panel.plot(counts, perfect, color=SOFT, linestyle=":", label="perfect", zorder=1)
        panel.set_xticks(counts)
        panel.set_ylim(bottom=0)
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        panel.set_ylabel("samples/s")
        _finish(panel, "ranks")
        panel.legend()
        return _svg(figure, "Training speed by number of ranks")


def _backends(rows: Iterable[Bandwidth | Throughput]) -> list[tuple[str, str]]:
    """Colour and name of each backend, the one under test first."""
    names = dict.fromkeys(row.backend for row in rows)
    return list(zip((FIRST, SECOND), names, strict=False))


def _finish(panel: Axes, xlabel: str) -> None:
    panel.set_xlabel(xlabel)
    panel.grid(axis="y")
    panel.set_axisbelow(True)
    panel.tick_params(length=0)


def _svg(figure: Figure, label: str) -> str:
    """The figure as an `<svg>` element without background, in the page's colours and font."""
    figure.patch.set_alpha(0)
    for panel in figure.axes:
        panel.patch.set_alpha(0)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    for placeholder, colour in COLOURS.items():
        svg = svg.replace(placeholder, colour)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
