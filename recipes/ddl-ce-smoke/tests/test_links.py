"""Which of several hosts and uplinks is slow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ddl_ce_smoke import cli
from ddl_ce_smoke.links import judge_links, read_reference, some_pairs
from ddl_ce_smoke.model import Link


def hosts(*gbit: float) -> list[Link]:
    return [Link(f"h{n}", "host", rate / 8e-9) for n, rate in enumerate(gbit)]


def failed(links: list[Link], **reference: float) -> list[str]:
    before = {name: rate / 8e-9 for name, rate in reference.items()}
    return [c.message for c in judge_links(links, before) if c.outcome == "failed"]


def test_the_host_below_its_kind() -> None:
    assert failed(hosts(1, 1, 0.8, 0.95)) == [
        "h2: 0.8 Gbit/s, 82% of 0.975 (most hosts reach)",
    ]


@pytest.mark.parametrize("gbit", [(1, 1, 0.95), (1, 0.5), (1,)])
def test_none_can_be_named(gbit: tuple[float, ...]) -> None:
    assert failed(hosts(*gbit)) == []


def test_the_reference_is_better_than_the_others() -> None:
    assert failed(hosts(1, 0.5), h1=0.5) == []
    assert failed(hosts(1, 1, 1), h1=2) == ["h1: 1 Gbit/s, 50% of 2 (reference)"]


def test_kinds_are_apart() -> None:
    uplinks = [Link(f"uplink of {name}", "uplink", 1.0) for name in "abc"]
    assert failed([*hosts(1, 1, 1), *uplinks]) == []


@pytest.mark.parametrize("n_hosts", [2, 3, 33, 40])
def test_every_host_has_a_peer(n_hosts: int) -> None:
    pairs = some_pairs(n_hosts)
    assert {host for pair in pairs for host in pair} == set(range(n_hosts))
    assert len(pairs) == len(set(pairs)) <= 3 * n_hosts
    assert all(a < b for a, b in pairs)


def test_a_reference_is_read(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"links": [{"name": "h0", "kind": "host", "rate": 2.0}]}))
    assert read_reference(report) == {"h0": 2.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("{", "is no report.json of this suite"),
        ("{}", "is no report.json of this suite"),
        ('{"links": [1]}', "is no report.json of this suite"),
        ('{"links": []}', "has no links"),
    ],
)
def test_a_bad_reference(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        cli.main(["--reference", str(path)])
    assert ended.value.code == 2
    assert f"{path}" in (error := capsys.readouterr().err)
    assert said in error
