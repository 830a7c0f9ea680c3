"""libddl of the built environment in the lab: what crosses an uplink, and a cable that is cut.

Bytes do not depend on how busy the machine is; times are a matter of `make bench`.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

import bench.lab
from bench.environment import built
from bench.lab.bar import LEAST_SIZE
from bench.lab.cell import Budget, measure
from bench.lab.faults import PROGRAMS, told
from bench.lab.layout import parse_layout, rank_order
from bench.lab.network import Lab, bring_up
from bench.lab.peers.ddl import Ddl, run_probe, start_told
from bench.lab.run import run_on
from integration.lab import needs_lab

pytestmark = [
    pytest.mark.built,
    needs_lab,
]

TIMEOUT = 3.0
MOVE = Path(bench.lab.__file__).parent / "workers" / "move.py"


@pytest.fixture(scope="module")
def ddl() -> Ddl:
    peer = Ddl(topology=True)
    peer.prepare()
    return peer


SHORT_PACKETS = pytest.mark.xfail(
    reason="1.032: few chunks are under way before an uplink, and at 2 MiB they are short"
)
seldom = pytest.mark.slow  # eight hosts or more layouts: as long as all the rest


@pytest.mark.parametrize(
    ("layout", "order", "nbytes"),
    [
        ("ragged-3+1", "random:1", 2 << 20),
        pytest.param("racks-2x4", "interleaved", LEAST_SIZE, marks=seldom),
        ("racks-2x2x2", "interleaved", LEAST_SIZE),
        pytest.param("racks-2x4", "interleaved", 2 << 20, marks=[SHORT_PACKETS, seldom]),
        pytest.param("racks-2x2x2", "interleaved", 2 << 20, marks=[SHORT_PACKETS, seldom]),
    ],
)
def test_the_data_crosses_an_uplink_once(ddl: Ddl, layout: str, order: str, nbytes: int) -> None:
    with bring_up(parse_layout(layout)) as lab:
        cell = measure(lab, order, nbytes, ddl, Budget(iterations=3))
    assert cell.failure == ""  # every element was checked
    assert 1.0 <= cell.uplink <= 1.03
    assert cell.orphans == 0


# Of 8 hosts' blocks, each rack has half, which the other must get; a broadcast enters one rack.
@pytest.mark.parametrize(
    ("collective", "share"), [("allgather", 0.5), ("reduce_scatter", 0.5), ("broadcast", 1.0)]
)
def test_other_collectives_cross_it_as_seldom(collective: str, share: float) -> None:
    nbytes = 2 << 20
    prefix = built()
    with bring_up(parse_layout("racks-2x4")) as lab:
        hosts = [f"h{host}" for host in rank_order(lab.layout, "interleaved")]
        program = [str(prefix / "bin" / "python"), str(MOVE), collective, str(nbytes)]
        started = start_told(lab, prefix, hosts, [*program, str(lab.counters), str(lab.folder)])
        outcome = run_on(lab, "h0", started.command, started.env, 60)
        assert outcome.code == 0, outcome  # every element was checked
        crossed = lab.crossed() / (3 * nbytes)
    assert share <= crossed <= 1.05 * share


def cut_in_use(lab: Lab, host: str) -> None:
    """Cut a host off a second after the ranks have begun to reduce."""
    while not (lab.folder / "begin").exists():
        time.sleep(0.1)
    time.sleep(1)
    lab.cut(host)


@pytest.mark.parametrize("cut", [pytest.param("h1", marks=seldom), "h2"])
def test_a_cut_cable_is_an_error_on_every_survivor(ddl: Ddl, cut: str) -> None:
    layout = parse_layout("ragged-2+1")
    with bring_up(layout) as lab:
        hosts = [f"h{host}" for host in rank_order(layout, "sorted")]
        arguments = ["262144", "100000", "60", str(lab.counters), str(lab.folder)]
        started = ddl.start(lab, hosts, arguments)
        options = f"{started.env['DDL_OPTIONS']} -timeout {TIMEOUT:g}"
        threading.Thread(target=cut_in_use, args=(lab, cut), daemon=True).start()
        outcome = run_on(lab, "h0", started.command, {**started.env, "DDL_OPTIONS": options}, 60)
    assert outcome.code == 1, outcome  # not killed at the limit
    assert outcome.orphans == 0
    # By itself or from another survivor that saw it first, and then only the lost rank is named.
    told = r"(?:rank \d \(host \S+\) gave up: )?no answer .* from (.*);"
    why = re.search(rf"rank 0 \(host h0\) ends the job: {told}", outcome.stderr)
    assert why, outcome.stderr
    assert re.fullmatch(rf"rank \d \(host {cut}\)", why[1])


@pytest.mark.parametrize(
    ("layout", "seed"),
    [
        ("ragged-2+1", 1),
        *(
            pytest.param(layout, seed, marks=seldom)
            for layout in ("ragged-2+1", "racks-2x2x2")
            for seed in range(2, 12)
        ),
    ],
)
def test_a_cable_cut_at_a_random_moment_is_an_error_on_every_rank(layout: str, seed: int) -> None:
    """Random collectives in a random order of ranks; the rank that is cut off notices it too."""
    prefix = built()
    with bring_up(parse_layout(layout)) as lab:
        hosts = [f"h{host}" for host in rank_order(lab.layout, f"random:{seed}")]
        hosts = hosts if hosts[-1] != "h0" else hosts[::-1]  # mpiexec's own is not cut
        ended, reports = lab.folder / "ended", lab.folder / "reports"
        ended.mkdir()
        reports.mkdir()
        storm = [str(PROGRAMS / "survive.py"), str(PROGRAMS / "storm.py"), "cut", str(seed)]
        program = [str(prefix / "bin" / "python"), *storm, str(reports)]
        started = start_told(lab, prefix, hosts, program, f"-timeout {TIMEOUT:g}")
        victim = threading.Thread(target=cut_off, args=(lab, hosts[-1], reports, len(hosts)))
        victim.start()
        outcome = run_on(lab, "h0", started.command, {**started.env, "SURVIVE": str(ended)}, 60)
        victim.join()
        reported = told(reports)
    assert set(reported) == set(range(len(hosts))), (reported, outcome)
    assert outcome.code == 1, outcome  # not killed at the limit
    assert outcome.orphans == 0
    for rank, text in reported.items():
        found = re.match(rf"rank {rank}: (\w+) after .* calls, (\S+) s late: (.*)", text)
        assert found, text
        assert found[1] in {"TIMEOUT", "PEER_LOST", "MPI"}, text
        named = re.findall(r"rank (\d+) \(host (\w+)\)", found[3])
        assert found[1] == "MPI" or any(int(other) != rank for other, _ in named), text
        assert all(hosts[int(other)] == host for other, host in named), text


def cut_off(lab: Lab, host: str, reports: Path, ranks: int) -> None:
    """Cut a host off from when storm.py says so until all ranks have reported, or for 20 s."""
    end = time.monotonic() + 40
    while not (reports / "fault").exists() and time.monotonic() < end:
        time.sleep(0.01)
    lab.cut(host)
    end = time.monotonic() + 20
    while len(list(reports.glob("[0-9]*"))) < ranks and time.monotonic() < end:
        time.sleep(0.1)
    lab.restore(host)  # mpiexec waits for its proxies


@pytest.mark.parametrize(
    "layout",
    [
        *("racks-2x3", "slow-host", "flat-3"),
        *(pytest.param(layout, marks=seldom) for layout in ("ragged-3+2", "ragged-2+1")),
    ],
)
def test_the_probe_finds_racks_and_slow_hosts(layout: str) -> None:
    """By ddlrun, without being told; rates within a third."""
    with bring_up(parse_layout(layout)) as lab:
        hosts = [f"h{host}" for host in rank_order(lab.layout, "interleaved")]
        file, probe = run_probe(lab, built(), hosts)
        assert probe.wrong == (), file.read_text()
        assert lab.left_over() == []
