"""The probe: hosts into racks by their rates, and a file that the library takes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from ddl.probe import (
    CHANCES,
    Group,
    find_groups,
    in_doubt,
    measure_pairs,
    measure_uplinks,
    of_a_kind,
    rate_of,
    to_yaml,
)

from conftest import MPIEXEC, Launch, environment


def rates(racks: list[int], host: float, uplink: float, slow: dict[int, float]) -> dict:
    """Bytes/s of all pairs of hosts in racks[h] behind links of `host`, some slower."""
    own = [slow.get(h, host) for h in range(len(racks))]
    return {
        (a, b): min(own[a], own[b], host if racks[a] == racks[b] else uplink)
        for a, b in itertools.combinations(range(len(racks)), 2)
    }


@pytest.mark.parametrize(
    ("racks", "slow", "expected"),
    [
        ([0, 1, 0, 1, 0, 1], {}, [[0, 2, 4], [1, 3, 5]]),
        ([0, 0, 0, 0], {}, [[0, 1, 2, 3]]),
        ([0, 0, 0, 0], {2: 25}, [[0, 1, 2, 3]]),
        ([0, 0, 1, 1, 0, 2, 2], {}, [[0, 1, 4], [2, 3], [5, 6]]),
        ([0, 1, 0, 1, 0, 1], {0: 60}, [[0, 2, 4], [1, 3, 5]]),
        ([0, 0, 0, 1, 1, 1, 2], {}, [[0, 1, 2], [3, 4, 5], [6]]),
        ([2, 0, 1, 0, 1, 0, 1], {}, [[0], [1, 3, 5], [2, 4, 6]]),
        ([0, 0, 1, 2, 3], {}, [[0, 1], [2], [3], [4]]),
        ([3, 0, 1, 0, 2], {}, [[0], [1, 3], [2], [4]]),
        ([0, 0, 0, 1, 2], {1: 15}, [[0, 1, 2], [3], [4]]),
        ([0, 0, 0, 0], {1: 20, 3: 15}, [[0, 1, 2, 3]]),
        ([0, 1, 2, 3], {}, [[0, 1, 2, 3]]),
        ([0, 1, 0, 1, 0, 1], {5: 20}, [[0, 2, 4], [1, 3, 5]]),
        ([0, 1, 0, 1, 0, 1], {0: 10, 3: 20}, [[0, 2, 4], [1, 3, 5]]),
    ],
)
def test_racks_are_found_by_rates(
    racks: list[int], slow: dict[int, float], expected: list[list[int]]
) -> None:
    alone = rates(racks, 100, 20, slow)

    def together(pairs: list[tuple[int, int]]) -> list[float]:
        """The pairs with a receiver in the same rack share its uplink, if they come through it."""
        found = []
        for a, b in pairs:
            through = [pair for pair in pairs if racks[pair[1]] == racks[b] != racks[pair[0]]]
            most = 20 / len(through) if (a, b) in through else 100
            found.append(min(most, alone[min(a, b), max(a, b)]))
        return found

    groups = find_groups(alone, len(racks), together)
    assert [group.hosts for group in groups] == expected


@pytest.mark.parametrize(
    ("racks", "slow"),
    [([0, 1, 0, 1], {}), ([0, 0, 1, 2, 3], {}), ([0, 0, 0, 1, 1], {1: 15}), ([0, 0], {})],
)
def test_what_a_tree_explains_is_not_in_doubt(racks: list[int], slow: dict[int, float]) -> None:
    assert in_doubt(rates(racks, 100, 20, slow), len(racks)) == []


def test_pairs_that_were_held_up_are_measured_again() -> None:
    true = rates([0, 0, 0, 1, 1, 1], 100, 20, {})
    held_up = {(0, 2): [40, 60], (3, 4): [10]}  # by its turns
    turns: dict[tuple[int, int], int] = {}

    def measure(pair: tuple[int, int]) -> float:
        turn = turns[pair] = turns.get(pair, 0) + 1
        slower = held_up.get(pair, [])
        return slower[turn - 1] if turn <= len(slower) else true[pair]

    assert measure_pairs(6, measure) == true
    assert {pair: turn for pair, turn in turns.items() if turn > 1} == {(0, 2): 3, (3, 4): 2}


def test_a_pair_that_stays_slow_is_what_it_is() -> None:
    true = rates([0, 0, 0], 100, 20, {}) | {(0, 1): 50}
    turns: list[tuple[int, int]] = []

    def measure(pair: tuple[int, int]) -> float:
        turns.append(pair)
        return true[pair]

    assert measure_pairs(3, measure) == true
    assert len(turns) == 3 + CHANCES


@pytest.mark.parametrize(
    ("nbytes", "seconds", "more", "longer", "expected"),
    [
        (400, 4.0, 200, 2.0, 100),
        (400, 3.0, 200, 2.0, 100),  # 100 bytes were let through at once
        (400, 4.1, 200, 2.0, 100),  # 0.1 s of latency
        (400, 4.0, 200, 1.0, 100),  # the one before was held up by 1 s
        (400, 4.0, 200, -1.0, 100),
    ],
)
def test_the_rate_of_a_transfer(
    nbytes: int, seconds: float, more: int, longer: float, expected: float
) -> None:
    assert rate_of(nbytes, seconds, more, longer) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ([100, 47, 104, 0, 48, 102, 50, 0], [102, 48, 102, 0, 48, 102, 48, 0]),
        ([100, 115, 125], [107.5, 107.5, 125]),
        ([10], [10]),
        ([], []),
    ],
)
def test_rates_that_hardly_differ_are_one(measured: list[float], expected: list[float]) -> None:
    assert of_a_kind(measured) == expected


def test_a_transfer_that_is_held_up_does_not_slow_an_uplink() -> None:
    groups = [Group([0, 1]), Group([2, 3])]
    measured = iter([[12.0, 10.0], [3.0, 11.0], [8.0, 2.0], [11.0, 11.0]])
    measure_uplinks(groups, [50.0] * 4, lambda _: next(measured))
    assert [group.bandwidth for group in groups] == [20.0, 22.0]


def test_an_uplink_that_is_slower_than_another_is_measured_again() -> None:
    groups = [Group([0, 1]), Group([2, 3])]
    measured = iter([[10.0, 10.0], [10.0, 10.0], [3.0, 3.0], [4.0, 4.0], [7.0, 7.0], [11.0, 11.0]])
    measure_uplinks(groups, [50.0] * 4, lambda _: next(measured))
    assert [group.bandwidth for group in groups] == [20.0, 22.0]


def test_the_file_names_racks_and_links() -> None:
    text = to_yaml(["a", "b", "c"], [Group([0, 2], 25e6), Group([1])], [125e6] * 3, 3e-5)
    assert text.splitlines()[1:] == [
        "name: cluster",
        "children:",
        "- name: rack0",
        "  bandwidth: 0.2",
        "  children:",
        '  - {host: "a", bandwidth: 1, latency: 30}',
        '  - {host: "c", bandwidth: 1, latency: 30}',
        '- {host: "b", bandwidth: 1, latency: 30}',
    ]


def run_probe(file: Path, n: int, hosts: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MPIEXEC, "-n", str(n), sys.executable, "-m", "ddl.probe", str(file)],
        env=environment(DDL_FAKE_HOSTS=hosts),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_it_writes_is_a_topology(passes: Launch, tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    done = run_probe(file, n=3, hosts=3)
    assert done.returncode == 0, done.stderr
    assert "3 hosts measured in" in done.stdout
    options = {"DDL_OPTIONS": f"-topology {file}"}
    passes("movement", n=3, hosts=3, chunk=1024, env=options)


@pytest.mark.parametrize(
    ("n", "hosts", "file", "message"),
    [
        (2, 0, "t.yaml", "the probe needs two hosts or more and one rank on each, not 2 ranks on"),
        (2, 2, "no/t.yaml", "cannot write"),
    ],
)
def test_what_it_cannot_do(tmp_path: Path, n: int, hosts: int, file: str, message: str) -> None:
    done = run_probe(tmp_path / file, n, hosts)
    assert done.returncode != 0
    assert done.stderr.count(f"ddl.probe: {message}") == 1
    assert "Traceback" not in done.stderr
