"""What is predicted without a job: `ddl-sim` and `ddlrun -show_topology`, as installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ddl import _core
from ddl.sim.presets import PRESETS
from ddl.sim.report import parse_size, size_text
from ddl.sim.training import Training, efficiency

from conftest import Launch, environment

BIN = Path(sys.executable).parent
RACKS = """name: cluster
children:
- name: rack0
  bandwidth: 1
  children:
  - {host: 'node[01-12]', bandwidth: 25, latency: 5}
- name: rack1
  bandwidth: 1
  children:
  - {host: 'node[13-24]', bandwidth: 25, latency: 5, sockets: 2}
"""


def run(program: str, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / program), *words],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def racks(tmp_path: Path) -> Path:
    file = tmp_path / "racks.yaml"
    file.write_text(RACKS)
    return file


# -- ddl-sim ------------------------------------------------------------------------------------


def test_it_says_that_it_is_a_simulation(racks: Path) -> None:
    done = run("ddl-sim", "-topology", str(racks), "--size", "64K", "-size", "4M")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("SIMULATION, nothing is measured: ")
    assert "24 hosts x 1 rank(s)" in lines[0]
    assert "  rack0: 1 Gbit/s" in lines
    assert "    node01 … node12 (12 hosts): 25 Gbit/s, 5 us each" in lines
    assert "    node13 … node24 (12 hosts): 25 Gbit/s, 5 us, 2 sockets each" in lines
    assert [line.split()[:2] for line in lines[-2:]] == [["64", "KiB"], ["4", "MiB"]]


def test_json_has_the_same(racks: Path) -> None:
    done = run("ddl-sim", "-topology", str(racks), "-size", "4M", "-schedule", "halving", "-json")
    found = json.loads(done.stdout)
    assert found["simulation"] is True
    (row,) = found["sizes"]
    assert (row["schedule"], row["limit"], row["nbytes"]) == ("halving", "link of rack0", 4 << 20)
    assert row["seconds"] >= row["bound"] >= (4 << 20) / (1e9 / 8)


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets(name: str) -> None:
    done = run("ddl-sim", "-preset", name, "-json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["bandwidths_known"]
    assert found["hosts"] == int(name.rpartition("-")[2])
    assert all(row["seconds"] >= row["bound"] > 0 for row in found["sizes"])
    shares = found["efficiency"]
    assert 0 < shares["without_overlap"] < shares["with_overlap"] < 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "give -topology FILE or -preset NAME, one of them"),
        ("-preset summit-954 -topology x", "give -topology FILE or -preset NAME, one of them"),
        ("-topology none.yaml", "cannot read none.yaml: No such file or directory"),
        ("-topology bad.yaml", "bad.yaml:1: neither 'host' nor 'children'"),
        ("-topology one.yaml", "one.yaml: one host alone has nobody to exchange with"),
        (
            "-preset minsky-64 -schedule fast",
            "-schedule: expected auto, direct, halving, radix:R, ",
        ),
        ("-preset minsky-64 -schedule radix:x", "-schedule radix:x: expected a whole number"),
        ("-preset minsky-64 -size 4Q", "'4Q' is not a size such as 4096, 64K, 4M or 1G"),
        ("-preset minsky-64 -latency -3", "-latency: '-3' is not a number above 0"),
        ("-preset minsky-64 -ranks_per_host 0", "'0' is not a number of ranks from 1 to 1024"),
        ("-preset sierra", "invalid choice: 'sierra'"),
        ("-frobnicate", "unrecognized arguments: -frobnicate"),
    ],
)
def test_wrong_words_get_one_line(words: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: nobody\n")
    (tmp_path / "one.yaml").write_text("host: alone\n")
    done = run("ddl-sim", *words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("ddl-sim: error: ")
    assert message in line


# -- ddlrun -show_topology ----------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-show_topology", "--show-topology"])
def test_a_file_shows_tree_and_schedules(racks: Path, option: str) -> None:
    done = run("ddlrun", option, "-topology", str(racks), "-ddlarg", "-schedule direct")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"24 hosts with 1 rank each, all of {racks}"
    assert "  rack1: 1 Gbit/s" in lines
    assert "Allreduce between the hosts, -schedule direct; times are calculated:" in lines
    head, *rows = lines[-4:]
    assert head.split()[:3] == ["size", "schedule", "steps"]
    assert "predicted ms" in head
    assert "bound ms" in head
    assert [row.split()[2] for row in rows] == ["direct"] * 3


def test_a_file_and_hosts_show_the_jobs_part(racks: Path) -> None:
    words = ["-topology", str(racks), "-H", "node01:2,node14:2,node02:2"]
    done = run("ddlrun", "-show_topology", *words)
    assert done.stdout.startswith(f"3 hosts with 2 ranks each, connected as in {racks}\n")
    assert "    node01 node02: 25 Gbit/s, 5 us each\n" in done.stdout
    assert "  node14: 1 Gbit/s, 5 us, 2 sockets each\n" in done.stdout


def test_a_mode_shows_groups_without_times() -> None:
    done = run("ddlrun", "-show_topology", "-mode", "p:6x18x4")
    assert done.stdout.startswith("72 hosts with 6 ranks each, -mode p:6x18x4\n")
    assert "    host0 … host17 (18 hosts)\n" in done.stdout
    assert "Bandwidths are not known for every host, so no times" in done.stdout
    assert "predicted ms" not in done.stdout


def test_hosts_side_by_side() -> None:
    done = run("ddlrun", "-show_topology", "-H", "a,b,c", "python", "train.py")
    assert done.stdout.startswith("3 hosts with 1 rank each, side by side as far as is known\n")
    assert "  a b c\n" in done.stdout
    alone = run("ddlrun", "-show_topology", "-H", "localhost:4")
    assert "One host: the ranks sum in its memory" in alone.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-topology none.yaml", "-topology none.yaml: No such file or directory"),
        ("-topology bad.yaml", "bad.yaml:1: neither 'host' nor 'children'"),
        ("-topology racks.yaml -H node01,other", "host 'other' of this job is not in the file"),
        ("-mode q:2", "-mode q:2 is not understood"),
        ("-mode p:1x1000000", "-mode p:1x1000000: more than 100000 hosts"),
        (
            "-H a,b -ddloption -schedule\tfast",
            "-schedule: expected auto, direct, halving, radix:R,",
        ),
    ],
)
def test_wrong_topologies(words: str, message: str, racks: Path) -> None:
    (racks.parent / "bad.yaml").write_text("name: nobody\n")
    done = run("ddlrun", "-show_topology", *words.split(" "), cwd=racks.parent)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr.splitlines()[0]


# -- the functions ------------------------------------------------------------------------------


def test_sizes() -> None:
    assert [parse_size(text) for text in ("1", "64K", "4m", "1G")] == [1, 1 << 16, 4 << 20, 1 << 30]
    assert [size_text(n) for n in (1, 65536, 102_200_000)] == ["1 B", "64 KiB", "97.47 MiB"]


def test_efficiency() -> None:
    training = Training(gradient=1, images=30, images_per_second=100)  # 300 ms, 200 of them back
    assert efficiency(training, 0.1, overlap=False) == pytest.approx(0.75)
    assert efficiency(training, 0.1, overlap=True) == pytest.approx(0.3 / 0.31)
    assert efficiency(training, 0.3, overlap=True) == pytest.approx(0.75)


def test_a_prediction_is_the_librarys() -> None:
    tree = _core.parse_tree(RACKS, "racks", None)
    assert tree.num_hosts() == 24
    chunking = _core.usual_chunking(tree, 1)
    name, direct = _core.predict(tree, 4 << 20, "direct", chunking, _core.Wire())
    assert (name, direct.steps, direct.chunk) == ("direct", 4, 128 << 10)
    _, halving = _core.predict(tree, 4 << 20, "halving", chunking, _core.Wire())
    assert halving.steps > direct.steps
    assert halving.messages < direct.messages
    assert chunking.most_chunk == 12 * 32 << 10  # a message for each of a rack's hosts
    with pytest.raises(ValueError, match="host 'x' of this job is not in the file"):
        _core.parse_tree(RACKS, "racks", ["x"])


# -- the schedules, run -------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["direct", "halving", "radix:3", "ring", "tree", "auto"])
def test_every_schedule_sums_right(passes: Launch, schedule: str) -> None:
    options = {"DDL_OPTIONS": f"-schedule {schedule}"}
    passes("reductions", "exact", n=4, hosts=4, chunk=1024, env=options)


def test_schedules_that_differ_are_refused(passes: Launch) -> None:
    done = passes("schedules", n=2, hosts=2)
    assert done.stderr.count("-schedule differs between ranks; give all of them the same") == 2
