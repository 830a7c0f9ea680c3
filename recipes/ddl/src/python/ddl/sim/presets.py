"""Clusters that there is no machine for, from public numbers, as topology files.

Each says what it assumes; docs/simulation.md in the repository has the sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ddl.sim.training import Training


@dataclass(frozen=True)
class Preset:
    """A cluster: its topology file, and properties that such a file does not have.

    Attributes:
        topology: the file's text.
        ranks_per_host: GPUs of a host, each with a rank.
        wire: values for `ddl._core.Wire`.
        training: the model that it trains, if that is part of it.
        assumptions: a sentence each.
    """

    topology: str
    ranks_per_host: int
    wire: dict[str, float] = field(default_factory=dict)
    training: Training | None = None
    assumptions: tuple[str, ...] = ()


_RDMA = {"overhead": 0.5e-6, "processing": 0.0}


def _minsky() -> Preset:
    return Preset(
        topology="name: cluster\nchildren:\n"
        "- {host: 'minsky[01-64]', bandwidth: 100, latency: 0.75}\n",
        ranks_per_host=4,
        wire={**_RDMA, "goodput": 0.95, "within_host": 1.5 / 20e9},
        training=Training(gradient=102_200_000, images=32, images_per_second=195.0),
        assumptions=(
            "64 nodes with 4 P100 each, one EDR InfiniBand port (100 Gbit/s) a node, switches "
            "without oversubscription",
            "links carry 95% payload, a switch hop takes 0.75 us, a message costs a rank 0.5 us",
            "the 4 GPUs of a node sum at 20 GB/s (bus bandwidth over NVLink 1)",
            "ResNet-50 in float32: 102 MB of gradients, 32 images a GPU, 195 images/s on one P100 "
            "(TensorFlow's published benchmark, real data)",
        ),
    )


def _summit() -> Preset:
    racks = "".join(
        f"- name: rack{rack:02d}\n  children:\n"
        f"  - {{host: 'r{rack:02d}n[01-18]', bandwidth: 200, latency: 0.75}}\n"
        for rack in range(53)
    )
    return Preset(
        topology=f"name: summit\nchildren:\n{racks}",
        ranks_per_host=6,
        wire={**_RDMA, "goodput": 0.95, "within_host": (2 * 5 / 6) / 40e9},
        training=Training(gradient=102_200_000, images=64, images_per_second=360.0),
        assumptions=(
            "954 nodes in 53 racks of 18, 6 V100 each, dual-rail EDR InfiniBand (2 x 12.5 GB/s) "
            "used as one link of 25 GB/s, a fat tree without oversubscription",
            "links carry 95% payload, a switch hop takes 0.75 us, a message costs a rank 0.5 us",
            "the 6 GPUs of a node sum at 40 GB/s (bus bandwidth over NVLink 2 and the X bus)",
            "ResNet-50 in float32: 102 MB of gradients, 64 images a GPU, 360 images/s on one V100",
        ),
    )


PRESETS: dict[str, Callable[[], Preset]] = {"minsky-64": _minsky, "summit-954": _summit}
