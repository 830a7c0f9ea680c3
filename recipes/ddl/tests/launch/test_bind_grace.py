"""Cores and GPUs of ranks on NVIDIA Grace-Hopper: /sys and /proc as its nodes have them.

Each GPU's memory is a NUMA node, and seven more are kept for its parts (MIG): none has a CPU. The
numbers are those that NVIDIA's guides and sites' pages print of `numactl -H` and `nvidia-smi topo`.
"""

from pathlib import Path

import pytest
from ddl.launch.bind import cores_by_node, cores_by_socket
from test_bind import MadeUp

CORES = 72  # of a superchip; each has one thread
NODES_OF_GPU = 8


class Grace(MadeUp):
    """A node of so many superchips."""

    def __init__(self, root: Path, superchips: int) -> None:
        super().__init__(root)
        lists = [f"{CORES * n}-{CORES * (n + 1) - 1}" for n in range(superchips)]
        self.nodes(*lists, *[""] * (NODES_OF_GPU * superchips), cores=CORES * superchips)
        for chip in range(superchips):
            address = f"00{chip}9:01:00.0"
            self.write(
                f"proc/driver/nvidia/gpus/{address}/information",
                f"Model: \t\t NVIDIA GH200 120GB\nGPU UUID: \t GPU-{chip}",
            )
            self.write(f"sys/bus/pci/devices/{address}/numa_node", str(chip))
        self.cpus = set(range(CORES * superchips))


def span(first: int, last: int) -> list[int]:
    return [*range(first, last + 1)]


def test_one_superchip(tmp_path: Path) -> None:
    host = Grace(tmp_path, 1)
    assert host.share(1, host.cpus) == [span(0, 71)]
    assert host.share(2, host.cpus) == [span(0, 35), span(36, 71)], "both on its one GPU"


def test_four_superchips(tmp_path: Path) -> None:
    host = Grace(tmp_path, 4)
    own = [span(0, 71), span(72, 143), span(144, 215), span(216, 287)]
    assert host.share(4, host.cpus) == own
    assert host.share(4, host.cpus, "3,2,1,0") == own[::-1]
    assert host.share(2, host.cpus, "2,3") == own[2:]
    halves = [span(36 * n, 36 * n + 35) for n in range(8)]
    assert host.share(8, host.cpus) == [halves[n] for n in (0, 2, 4, 6, 1, 3, 5, 7)], (
        "rank r + 4 on the GPU of rank r"
    )


def test_nodes_of_memory_have_no_cores(tmp_path: Path) -> None:
    host = Grace(tmp_path, 4)
    assert [*cores_by_node(host.cpus, str(tmp_path))] == [0, 1, 2, 3]
    assert [len(cores) for cores in cores_by_socket(host.cpus, str(tmp_path))] == [CORES] * 4


@pytest.mark.parametrize("parts", [2, 7])
def test_parts_of_a_gpu(tmp_path: Path, parts: int) -> None:
    """Slurm names them by UUIDs, which /proc does not have: the cores are cut into equal parts."""
    host = Grace(tmp_path, 1)
    names = ",".join(f"MIG-{n}" for n in range(parts))
    shared = host.share(parts, host.cpus, names)
    assert sorted(cpu for share in shared for cpu in share) == span(0, 71)
    assert {len(share) for share in shared} <= {CORES // parts, CORES // parts + 1}
