"""The bar's table, from what the benchmarks write."""

from __future__ import annotations

import io
import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from bench import bar
from bench.bench_faults import checks as fault_checks
from bench.check import Check, missed
from bench.lab.cell import Cell
from bench.lab.faults import Fault, judge, lost_ranks, told_at_end
from bench.lab.layout import parse_layout
from bench.lab.probed import differences
from bench.lab.run import Outcome
from support.run import run as run_program

REPO = Path(__file__).parents[2]
MIB = 1 << 20
DATE = "2026-11-22T20:00:00+00:00"


def write(folder: Path, name: str, **found: object) -> None:
    head = {"date": DATE, "commit": "abc", "machine": {"cpus": 2, "processor": "Xeon"}}
    options = {"host_mbit": 250.0, "uplink_mbit": 50.0, "ranks": 8 if "start" in name else 2}
    (folder / f"{name}.json").write_text(json.dumps({**head, "options": options, **found}))


def lab_cells(ours: float, peer: float) -> list[dict[str, object]]:
    where = ("racks-2x4", "interleaved", 4 * MIB)
    mine = Cell(*where, "ddl-topology", 0.7, (ours,), uplink=1.02)
    return [asdict(mine), asdict(Cell(*where, "gloo", 0.7, (peer,), uplink=7.0))]


def run(folder: Path, *words: str, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What the command ends with."""
    monkeypatch.setattr("sys.argv", ["bar.py", "--out", str(folder), *words])
    try:
        bar.main()
    except SystemExit as end:
        return str(end)
    return None


def test_what_is_met_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "lab", cells=lab_cells(0.72, 3.0))
    said = run(tmp_path, monkeypatch=monkeypatch)
    assert said is not None
    assert all("not run: " in line for line in said.splitlines()[1:])
    out = capsys.readouterr().out
    assert "the best peer takes at least 4 x as long" in " ".join(out.split())
    assert "4.17" in out
    assert "bench_host.py has written nothing" in out


def test_what_falls_short_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "lab", cells=lab_cells(0.8, 2.1))
    types = [
        {"ranks": 2, "bytes": MIB, "type": name, "us": [us]}
        for name, us in (("float32", 90.0), ("float16", 110.0), ("bfloat16", 120.0))
    ]
    write(tmp_path, "types", cells=types)
    said = run(tmp_path, monkeypatch=monkeypatch)
    assert said is not None
    told, peer, bfloat16, float16 = (
        line for line in said.splitlines()[1:] if "not run: " not in line
    )
    assert told.endswith("1.14 x the lower bound; at most 1.07: not explained")
    assert "the best peer is at 3.00 of the bound" in peer
    assert float16.endswith("not explained")
    assert bfloat16.endswith("(tests/bench/results/2026-11-21-host.md)")
    write(tmp_path, "types", cells=[types[0], {**types[2], "us": [180.0]}])
    said = run(tmp_path, monkeypatch=monkeypatch)
    assert said is not None
    assert "bfloat16 has 0.50 x float32's rate; at least 0.9: not explained" in said


def test_older_figures_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "types", cells=[])
    checks, sources = bar.read_all(tmp_path, since=4e9)
    assert checks == []
    assert sources["types"] == f"not run: its figures are of {DATE}"


def test_every_row_stands_in_the_table(tmp_path: Path) -> None:
    checks, sources = bar.read_all(tmp_path, since=0)
    assert checks == []
    assert set(bar.ROWS.values()) == set(sources)
    out = io.StringIO()
    Console(file=out, width=300).print(bar.make_table(checks, sources))
    for row in bar.ROWS:
        assert re.search(rf"{re.escape(row)} .*not run: ", out.getvalue()), row


def test_rows_of_jax_and_of_keras_are_read(tmp_path: Path) -> None:
    kinds = ("psum by ddl", "ddl", "dispatch", "psum in a loop", "ddl.jax in a loop")
    cells = [{"kind": kind, "bytes": 4096, "seconds": [1e-4]} for kind in kinds]
    write(tmp_path, "jax", cells=cells)
    cell = Cell("racks-2x4", "sorted", 4 * MIB, "psum by ddl", 0.7, (0.72,))
    write(tmp_path, "jax_lab", cells=[asdict(cell)])
    ways = [("jax", 150.0), ("torch", 180.0), ("ddp", 180.0)]
    runs = [
        {"way": way, "ranks": ranks, "images_per_second": [speed if ranks == 2 else 100.0]}
        for way, speed in ways
        for ranks in (1, 2)
    ]
    write(tmp_path, "keras_backends", runs=runs)
    starts = {1: [0.1, 2.0], 8: [0.11, 4.0]}
    rows = [{"ranks": n, "starts": [{"figures": f, "cores": 1.0}]} for n, f in starts.items()]
    write(tmp_path, "jax_start", rows=rows)
    checks, _ = bar.read_all(tmp_path, since=0)
    assert missed(checks) == [
        "first sum, 8 ranks: 2.00 times as long as one rank; at most 1.2",
        "Keras on jax, 2 ranks: 0.83 of the efficiency of DistributedDataParallel; at least 0.95",
    ]
    assert {bar.ROWS[check.row] for check in checks} == {
        *("jax", "jax_lab", "jax_start", "keras_backends")
    }


def test_explanations_are_of_rows_and_results_that_exist() -> None:
    for entry in yaml.safe_load(bar.EXPLAINED.read_text()):
        assert entry["row"] in bar.ROWS
        assert re.compile(entry["of"])
        assert (REPO / entry["measured"]).exists()


@pytest.mark.parametrize(
    ("names", "code", "has"),
    [
        ("host lab", 0, "for name in host lab;"),
        ("host lob", 2, 'BENCHES: there is no benchmark "lob"; there are: build build_replay'),
    ],
)
def test_make_bench_of_some(names: str, code: int, has: str) -> None:
    command = ["make", "--dry-run", "bench", f"BENCHES={names}"]
    made = run_program(command, cwd=REPO)
    assert made.returncode == code
    assert has in made.stdout + made.stderr


def test_a_figure_that_is_no_number_falls_short() -> None:
    assert not Check("row", "here", "{} x", wanted=1).met
    assert Check("row", "here", "{} x", 0, 0, at_most=True).met


def test_an_error_before_the_timeout_is_not_the_worst() -> None:
    early, late = (Check("row", "h1", "{} s late", found, 1.0, at_most=True) for found in (-2, 0.1))
    assert min(early, late, key=lambda check: check.share) == late


def test_faults_are_judged_by_what_the_survivors_say() -> None:
    hosts = ["h0", "h1", "h2", "h2"]
    assert lost_ranks(hosts, "cut") == {2, 3}
    assert lost_ranks(hosts, "stop") == {3}
    reports = {
        0: "rank 0: TIMEOUT after 7 calls, 3.1 s late: no answer from rank 2 (host h2)",
        1: "rank 1: PEER_LOST after 7 calls, 4.5 s late: rank 0 (host h0) gave up",
        2: "rank 2: TIMEOUT after 7 calls, 3.0 s late: no answer from rank 0 (host h0)",
    }
    found = judge(reports, hosts, "cut")
    assert found == {
        "late": (3.1, 4.5),
        "silent": (),
        "unnamed": ("rank 1: rank 0 (host h0) gave up",),
        "codes": ("PEER_LOST", "TIMEOUT"),
    }
    assert judge(reports, hosts, "stop")["unnamed"][0].startswith("rank 0: no answer from rank 2")
    assert judge({}, hosts, "kill")["silent"] == (0, 1, 2)
    fault = Fault("ragged-2+1", "cut", 7, 3.0, **found, orphans=1)
    assert missed(fault_checks([fault])) == [
        "ragged-2+1 cut (seed 7): the last survivor has its error 1.50 s after the timeout; "
        "at most 1",
        "ragged-2+1 cut (seed 7): 1 survivors are not told the lost rank; at most 0",
        "ragged-2+1 cut (seed 7): 1 processes are left; at most 0",
    ]


def test_what_a_rank_that_mpi_ends_says_counts(tmp_path: Path) -> None:
    for name, when in (("fault", 100.0), ("1", 100.5)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (when, when))
    stderr = (
        "Abort(1) on node 1: OFI poll failed\n"
        "[1@h1] [ddl] MPI ends rank 1 (host h1): rank 0 (host h0) gave up: rank 2 (host h2) died\n"
    )
    reports = told_at_end(Outcome(1, "", stderr, 3.0, 0), tmp_path / "fault", tmp_path)
    assert judge(reports, ["h0", "h1", "h2"], "kill") == {
        "late": (0.5,),
        "silent": (0,),
        "unnamed": (),
        "codes": ("ENDED_BY_MPI",),
    }


PROBED = """
children:
- name: rack0
  bandwidth: 0.047
  children:
  - {host: h0, bandwidth: 0.24, latency: 30}
  - {host: h2, bandwidth: 0.23, latency: 30}
- {host: h1, bandwidth: 0.048, latency: 30}
"""


def test_what_a_probe_has_wrong() -> None:
    right = PROBED.replace("h2", "x").replace("h1", "h2").replace("x", "h1")
    assert differences(parse_layout("ragged-2+1"), right) == []
    assert differences(parse_layout("ragged-2+1"), PROBED) == [
        "racks h0+h2, not h0+h1",
        "h1 at 48 Mbit/s, not 239",
        "h2 at 230 Mbit/s, not 48",
    ]
    slow = right.replace("0.047", "0.24")
    assert differences(parse_layout("ragged-2+1"), slow) == [
        "the uplink of h0+h1 at 240 Mbit/s, not 48"
    ]


def test_one_host_behind_an_uplink_is_a_slow_host() -> None:
    def flat(*rates: float) -> str:
        hosts = (f"- {{host: h{n}, bandwidth: {rate}}}\n" for n, rate in enumerate(rates))
        return "children:\n" + "".join(hosts)

    assert differences(parse_layout("ragged-2+1"), flat(0.24, 0.24, 0.048)) == []
    more = differences(parse_layout("ragged-2+1+1"), flat(0.24, 0.24, 0.048, 0.048))
    assert more == ["racks none, not h0+h1"]


def test_a_probe_that_misses_a_slow_host() -> None:
    text = "children:\n" + "".join(f"- {{host: h{n}, bandwidth: 0.48}}\n" for n in range(4))
    assert differences(parse_layout("slow-host"), text) == ["h3 at 480 Mbit/s, not 120"]
    assert (
        differences(
            parse_layout("slow-host"), text.replace("h3, bandwidth: 0.48", "h3, bandwidth: 0.12")
        )
        == []
    )
