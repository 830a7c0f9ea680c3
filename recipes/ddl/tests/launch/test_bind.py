"""Cores and GPUs of each rank, on made-up hosts; and what of it reaches a rank on this one."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ddl.launch.bind import (
    cores_by_node,
    gpus_of_ranks,
    nodes_of_ranks,
    numbers_of,
    shares,
    visible_gpus,
)
from test_run import SHOW, show

from conftest import Result

Run = Callable[..., Result]


class MadeUp:
    """A tree of /sys and /proc with cores of two threads on nodes, and GPUs near to these."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def nodes(self, *lists: str, cores: int) -> None:
        """CPU n and n + cores are threads of core n; the lists are those of the nodes."""
        for node, text in enumerate(lists):
            self.write(f"sys/devices/system/node/node{node}/cpulist", text)
            for cpu in numbers_of(text):
                folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
                self.write(f"{folder}/physical_package_id", str(node))
                self.write(f"{folder}/core_id", str(cpu % cores))

    def gpus(self, *nodes: int) -> None:
        for number, node in enumerate(nodes):
            address = f"0000:{number + 1:02X}:00.0"
            self.write(
                f"proc/driver/nvidia/gpus/{address}/information",
                f"Model: \t\t A GPU\nGPU UUID: \t GPU-{number}\nDevice Minor: \t {number}",
            )
            self.write(f"sys/bus/pci/devices/{address.lower()}/numa_node", str(node))

    def share(self, n_local: int, cpus: set[int], gpus: str | None = None) -> list[list[int]]:
        """The CPUs of each rank, near to its GPU."""
        owned = gpus_of_ranks(visible_gpus(gpus, str(self.root)), n_local)
        cores = cores_by_node(cpus, str(self.root))
        return [
            sorted(cpu for core in mine for cpu in core)
            for mine in shares(cores, n_local, nodes_of_ranks(owned))
        ]


@pytest.fixture
def host(tmp_path: Path) -> MadeUp:
    """Eight cores on two nodes that take turns, as some firmware numbers them."""
    host = MadeUp(tmp_path)
    host.nodes("0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15", cores=8)
    return host


ALL = set(range(16))


def test_ranks_are_spread_over_the_nodes(host: MadeUp) -> None:
    assert host.share(1, ALL) == [sorted(ALL)]
    assert host.share(2, ALL) == [[0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15]]
    assert host.share(4, ALL) == [[0, 2, 8, 10], [4, 6, 12, 14], [1, 3, 9, 11], [5, 7, 13, 15]]
    assert host.share(8, ALL) == [[n, n + 8] for n in (0, 2, 4, 6, 1, 3, 5, 7)]
    assert host.share(9, ALL) == [[]] * 9, "not bound: there are not enough cores"


def test_only_the_cores_that_we_may_use(host: MadeUp) -> None:
    assert host.share(2, {4, 6, 12}) == [[4, 12], [6]]


def test_cores_are_those_near_to_the_ranks_gpu(host: MadeUp) -> None:
    host.gpus(1, 0, 1, 0)
    assert host.share(4, ALL) == [[1, 3, 9, 11], [0, 2, 8, 10], [5, 7, 13, 15], [4, 6, 12, 14]]
    # Two ranks with two GPUs each, of both nodes: an equal part of all.
    assert host.share(2, ALL) == [[0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15]]
    # What the batch system lets us see, by number and by UUID.
    assert host.share(2, ALL, "0,2") == [[1, 3, 9, 11], [5, 7, 13, 15]]
    assert host.share(2, ALL, "GPU-1,GPU-0") == [
        [0, 2, 4, 6, 8, 10, 12, 14],
        [1, 3, 5, 7, 9, 11, 13, 15],
    ]


def test_a_gpu_whose_node_has_no_cores_for_us(host: MadeUp) -> None:
    host.gpus(1, 1)
    assert host.share(2, {0, 2, 4, 6}) == [[0, 2], [4, 6]]


@pytest.mark.parametrize("node", [-1, 7])
def test_a_gpu_of_which_little_is_told(host: MadeUp, node: int) -> None:
    host.gpus(0, node)
    assert host.share(2, ALL)[0] == [0, 2, 4, 6, 8, 10, 12, 14]


def test_ranks_that_share_gpus(host: MadeUp) -> None:
    host.gpus(1, 0)
    owned = gpus_of_ranks(visible_gpus(None, str(host.root)), 4)
    assert owned == [[("0", 1)], [("1", 0)], [("0", 1)], [("1", 0)]]
    assert host.share(4, ALL) == [[1, 3, 9, 11], [0, 2, 8, 10], [5, 7, 13, 15], [4, 6, 12, 14]]


def test_ranks_with_several_gpus(host: MadeUp) -> None:
    host.gpus(0, 0, 1, 1)
    owned = gpus_of_ranks(visible_gpus(None, str(host.root)), 2)
    assert owned == [[("0", 0), ("1", 0)], [("2", 1), ("3", 1)]]
    assert host.share(2, ALL) == [[0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15]]


def test_a_host_that_tells_nothing(tmp_path: Path) -> None:
    host = MadeUp(tmp_path)
    assert host.share(2, {0, 1, 2, 3}) == [[0, 1], [2, 3]]
    assert visible_gpus(None, str(tmp_path)) == []
    assert visible_gpus("", str(tmp_path)) == []
    assert visible_gpus("3, MIG-x", str(tmp_path)) == [("3", -1), ("MIG-x", -1)]


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ([], ["5,GPU-a,7,8"] * 2),
        (["-bind_gpus"], ["5,GPU-a", "7,8"]),
        (["-bind_gpus", "-no_bind"], ["5,GPU-a", "7,8"]),
        (["-bind_gpus", "-x", "CUDA_VISIBLE_DEVICES=2"], ["2", "2"]),
        (["-bind_gpus", "-x", "CUDA_VISIBLE_DEVICES="], ["", ""]),
    ],
)
def test_what_a_rank_sees(ddlrun: Run, words: list[str], seen: list[str]) -> None:
    """Programs choose their GPU by the local rank, so all stay visible unless it is asked for."""
    program = [sys.executable, "-c", SHOW, "CUDA_VISIBLE_DEVICES DDLRUN_BIND_GPUS DDLRUN_EXPORTED"]
    own = {"CUDA_VISIBLE_DEVICES": "5,GPU-a,7,8"}
    found = show(ddlrun(*words, "-np", "2", *program, env=own))
    assert [value[0]["CUDA_VISIBLE_DEVICES"] for value in found] == seen
    assert {value[0]["DDLRUN_BIND_GPUS"] for value in found} == {None}
    assert {value[0]["DDLRUN_EXPORTED"] for value in found} == {None}
