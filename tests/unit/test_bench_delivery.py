"""What falls short of the bars of a bundle, and its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.bench_delivery import BUNDLE, PACK, Made, missed, show
from bench.command import Cost


@pytest.mark.parametrize(
    ("size", "seconds", "said"),
    [
        (1.05, 60.0, []),
        (1.051, 20.0, ["the bundle has 1.051 times its packages, and may have 1.05"]),
        (1.02, 61.0, ["the bundle takes 61 s, and may take 60 s"]),
        (1.1, 90.0, ["the bundle has 1.100 times", "the bundle takes 90 s"]),
    ],
)
def test_what_falls_short(size: float, seconds: float, said: list[str]) -> None:
    found = missed(size, seconds)
    assert len(found) == len(said)
    assert all(text.startswith(start) for text, start in zip(found, said, strict=True))


def test_the_table_has_medians_and_the_quickest(capsys: pytest.CaptureFixture[str]) -> None:
    def install(target: Path) -> Cost:
        raise AssertionError(target)

    made = {BUNDLE: Made(103, Cost(1, 2), install), PACK: Made(150, Cost(3, 4), install)}
    costs = {BUNDLE: [Cost(8, 9), Cost(5, 7), Cost(6, 30)], PACK: [Cost(4, 4)] * 3}
    show(made, costs, 100)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "bundle" in line]
    assert "6.0" in rows[0]
    assert "7.0" in rows[0]
    assert "1.030" in rows[0]
