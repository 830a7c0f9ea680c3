"""The report as one HTML page with nothing outside it."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ddl_ce_smoke.model import Bandwidth, Report, Throughput, size_text
from ddl_ce_smoke.probe import exists


def render(report: Report) -> str:
    """The page."""
    environment = Environment(
        loader=PackageLoader("ddl_ce_smoke", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    speeds = [row for row in report.throughput if row.accuracy is None] or report.throughput
    suite = f"ddl-ce-smoke {report.version}"
    return environment.get_template("report.html.j2").render(
        report=report,
        facts={
            "prefix": report.prefix,
            "command": report.command,
            "suite": suite,
            **report.machine,
        },
        trained=[row for row in report.throughput if row.accuracy is not None],
        speeds=speeds,
        bandwidth=bandwidth_table(report.bandwidth),
        backends=list(dict.fromkeys(row.backend for row in report.bandwidth)),
        **plots(report, speeds),
    )


def plots(report: Report, speeds: Sequence[Throughput]) -> dict[str, Markup]:
    """The plots of the measurements; none where there is no matplotlib to draw them."""
    if not exists("matplotlib-base"):
        return {"scaling_plot": Markup(), "bandwidth_plot": Markup()}
    from ddl_ce_smoke.plots import bandwidth_plot, scaling_plot

    return {
        "scaling_plot": Markup(scaling_plot(speeds) if speeds else ""),
        "bandwidth_plot": Markup(bandwidth_plot(report.bandwidth) if report.bandwidth else ""),
    }


def bandwidth_table(rows: Sequence[Bandwidth]) -> list[dict[str, object]]:
    """A line per ranks and size: every backend's figures, and the first's speed over the next's."""
    lines: dict[tuple[int, int], dict[str, Bandwidth]] = {}
    for row in rows:
        lines.setdefault((row.ranks, row.nbytes), {})[row.backend] = row
    table: list[dict[str, object]] = []
    for (ranks, nbytes), cells in lines.items():
        first, *others = cells.values()
        ratio = others[0].seconds / first.seconds if others else None
        size = size_text(nbytes)
        table.append({"ranks": ranks, "size": size, "cells": list(cells.values()), "ratio": ratio})
    return table
