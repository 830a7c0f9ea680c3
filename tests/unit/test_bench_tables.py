"""tables.py: Markdown of what the benchmarks write."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench import tables
from bench.lab.cell import Cell
from bench.lab.training import Training

MIB = 1 << 20
HEAD = {"date": "2026-11-23T05:00:00+00:00", "commit": "abc"}
MACHINE = {"cpus": 2, "processor": "Xeon"}
OPTIONS = {"host_mbit": 250.0, "uplink_mbit": 50.0, "repetitions": 3}


def shown(
    folder: Path,
    found: dict[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    for name, rest in found.items():
        report = {**HEAD, "machine": MACHINE, "options": OPTIONS, **rest}
        (folder / f"{name}.json").write_text(json.dumps(report))
    monkeypatch.setattr("sys.argv", ["tables.py", "--out", str(folder)])
    tables.main()
    return capsys.readouterr().out.splitlines()


def test_a_section_for_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    size = {"ranks": 2, "bytes": 4 * MIB}
    ours = {**size, "library": "ddl", "seconds": [1e-3, 9e-3, 2e-3], "far": []}
    mpich = {**size, "library": "mpich", "seconds": [3e-3], "far": [7e-3]}
    where = ("racks-2x4", "sorted", 4 * MIB)
    cells = [
        Cell(*where, "ddl-topology", 0.5, (0.6, 0.6), uplink=1.02),
        Cell(*where, "gloo", 0.5, (0.9,), uplink=2.0),
        Cell(*where, "mpich", 0.5, failure="not done in 60 s"),
    ]
    runs = [
        Training("racks-2x4", "sorted", "ddl", 4 * MIB, (0.5,), 1.0),
        Training("racks-2x4", "sorted", "gloo", 4 * MIB, (1.0,), 2.0),
    ]
    predicted = {"schedule": "auto", "chosen": "direct", "bound": 0.5, "predicted": 0.6}
    row = {"layout": "flat-8", "order": "sorted", "nbytes": MIB, **predicted}
    times = [
        {"ranks": 2, "bytes": MIB, "type": name, "us": [time]}
        for name, time in (("float32", 90.0), ("float16", 100.0), ("bfloat16", 180.0))
    ]
    lines = shown(
        tmp_path,
        {
            "host": {"cells": [ours, mpich]},
            "lab": {"cells": [asdict(cell) for cell in cells]},
            "types": {"cells": times},
            "ddp": {"runs": [asdict(run) for run in runs]},
            "sim": {"rows": [{**row, "measured": 0.5, "error": 0.2, "failure": ""}]},
        },
        monkeypatch,
        capsys,
    )
    assert "| 4 MiB | 2000 | 3000 | 1.50 |" in lines
    assert "2 ranks, us per call, in place, while the processors were far:" in lines
    assert "| 4 MiB | 7000 | – |" in lines
    lab = "| racks-2x4 | sorted | 4 MiB | 500 | 600 (1.20, 1.02) | 900 | – | 1.50 |"
    assert lab in lines
    assert "| 2 | 1 MiB | 90 | 100 | 180 | 0.90 | 0.50 |" in lines
    assert "| racks-2x4 | sorted | ddl | 500 | 1.00 | 2.00 |" in lines
    assert "| flat-8 | sorted | 1 MiB | direct | 500 | 600 | 500 | +20.0% |" in lines
    text = "\n".join(lines)
    assert "bench_lab.py`: 2026-11-23T05:00:00+00:00, abc, 2 x Xeon" in text
    assert "- float16, bfloat16: 2 ranks, 1048576 bytes: bfloat16 has 0.50 x" in text


def test_what_was_not_measured_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(tmp_path, {}, monkeypatch, capsys)
    assert "`python tests/bench/bench_host.py`: not run: bench_host.py has written nothing" in lines
