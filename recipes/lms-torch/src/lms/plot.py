"""The report as a picture: memory over an iteration, in-core and under the plan. SVG, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lms.report import Report
from lms.sizes import size_text

_WIDTH, _HEIGHT, _LEFT, _TOP = 800, 360, 90, 40


def _path(curve: Sequence[int], most: int) -> str:
    """Steps from interval to interval."""
    count = max(1, len(curve))
    words = []
    for index, size in enumerate(curve):
        y = _TOP + _HEIGHT * (1 - size / most)
        words += [f"{_LEFT + _WIDTH * (index + end) / count:.1f},{y:.1f}" for end in (0, 1)]
    return " ".join(words)


def plot(report: Report) -> str:
    """The picture as the text of an SVG file."""
    most = max(report.demand, report.limit, 1)
    limit = _TOP + _HEIGHT * (1 - report.limit / most)
    right, bottom = _LEFT + _WIDTH, _TOP + _HEIGHT
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{right + 30}" height="{bottom + 50}"
  font-family="sans-serif" font-size="13">
<title>Memory over one iteration</title>
<rect width="100%" height="100%" fill="white"/>
<text x="{_LEFT}" y="22">Memory over one iteration: {size_text(report.moved)} of
 {size_text(report.saved)} saved are swapped; {report.exposed * 1e3:.3g} ms of copies exposed</text>
<path d="M{_LEFT},{_TOP} V{bottom} H{right}" fill="none" stroke="black"/>
<polyline points="{_path(report.curve_before, most)}" fill="none" stroke="#999"/>
<polyline points="{_path(report.curve, most)}" fill="none" stroke="#06c" stroke-width="2"/>
<path d="M{_LEFT},{limit:.1f} H{right}" stroke="#c00" stroke-dasharray="6 4"/>
<text x="{_LEFT - 6}" y="{limit + 4:.1f}" text-anchor="end" fill="#c00">{
        size_text(report.limit)
    }</text>
<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>
<text x="{right}" y="{bottom + 20}" text-anchor="end">tensors saved and used, in order</text>
<text x="{_LEFT}" y="{bottom + 38}"><tspan fill="#999">in-core</tspan>
 <tspan fill="#06c">under LMS</tspan> <tspan fill="#c00">limit</tspan></text>
</svg>
"""


def write_plot(report: Report, path: str | Path) -> None:
    """Writes the plot of a report as SVG. OSError: the file cannot be written."""
    Path(path).write_text(plot(report))
