"""GPUs by name: their memory, and the speed with which the simulated device stands for one.

Arithmetic counts for 40% of the maker's figure for dense bfloat16 and memory for 84%, as training
reaches on an H100. Copies are those of pinned memory under load: 25 GB/s each way on PCIe 4, and 55
on PCIe 5. On C2C they are 297 out and 375 back, as published for a GH200.
"""

from __future__ import annotations

from dataclasses import dataclass

from lms.devices.simulated import Speed
from lms.errors import LMSError
from lms.sizes import DEFAULT_SHARE, PLANNED_SHARE

_PCIE4, _PCIE5, _C2C = (25e9, 25e9), (55e9, 55e9), (297e9, 375e9)


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU. `memory` is in bytes."""

    name: str
    memory: int
    speed: Speed

    @property
    def limit(self) -> int:
        """Bytes for a program's plan: the rest of the card is others', or for fragmentation."""
        return int(self.memory * DEFAULT_SHARE * PLANNED_SHARE)


def _gpu(
    name: str, gib: float, teraflops: float, terabytes: float, copies: tuple[float, float]
) -> Gpu:
    arithmetic, memory = 0.4 * teraflops * 1e12, 0.84 * terabytes * 1e12
    return Gpu(name, int(gib * 2**30), Speed(arithmetic, memory, *copies))


#: Memory is what CUDA shows, in GiB; then the maker's TFLOP/s and TB/s.
GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("V100", 31.7, 125, 0.9, (12e9, 12e9)),
        _gpu("A100-40GB", 39.4, 312, 1.555, _PCIE4),
        _gpu("A100", 79.2, 312, 2.039, _PCIE4),
        _gpu("A10G", 22.1, 125, 0.6, _PCIE4),
        _gpu("RTX4090", 23.5, 165, 1.008, _PCIE4),
        _gpu("L40S", 44.4, 362, 0.864, _PCIE4),
        Gpu("H100", int(79.1 * 2**30), Speed()),
        _gpu("H200", 139.8, 989, 4.8, _PCIE5),
        _gpu("GH200", 94.5, 989, 4.0, _C2C),
        _gpu("B200", 178.4, 2250, 8.0, _PCIE5),
    )
}


def gpu_named(name: str) -> Gpu:
    """A kind of GPU.

    Raises:
        LMSError: it is not known.
    """
    found = {known.lower(): gpu for known, gpu in GPUS.items()}.get(name.lower())
    if found is None:
        raise LMSError(
            f"the GPU {name} is not known; known are {', '.join(GPUS)}; for another one, give its "
            "memory as --limit"
        )
    return found
