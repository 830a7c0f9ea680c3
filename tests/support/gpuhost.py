"""A host on which NVIDIA's driver shows GPUs, as files: in a mount namespace of a command's own.

Programs see the files of the driver in /dev and in /proc/driver (NVIDIA's driver README, "Using
the procfs interface to the driver"). The GPUs themselves are the simulated ones.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts folders, as root")

#: Device files of a tmpfs in place of /dev: (name, major, minor).
DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9))


def on_gpu_host(folder: Path, gpus: int, command: Sequence[str | Path]) -> list[str]:
    """A command on this host as if it had so many GPUs.

    Args:
        folder: an empty one, for the driver's files.
    """
    for number in range(gpus):
        of_gpu = folder / "nvidia" / "gpus" / f"0000:0{number + 1}:00.0"
        of_gpu.mkdir(parents=True)
        lines = (
            "Model: \t\t simulated GPU",
            f"GPU UUID: \t GPU-0000000{number}",
            f"Device Minor: \t {number}",
        )
        (of_gpu / "information").write_text("\n".join(lines) + "\n")
    nodes = [f"mknod -m 666 {name} c {major} {minor}" for name, major, minor in DEVICES]
    nodes += [f"touch nvidia{number}" for number in range(gpus)]
    script = [
        "set -e",
        "mount --make-rprivate /",
        f"mount --bind {folder} /proc/driver",
        f"mkdir {folder}/dev {folder}/kept",
        f"mount --rbind /dev {folder}/kept",
        f"mount -t tmpfs -o mode=755 tmpfs {folder}/dev",
        f"cd {folder}/dev",
        *nodes,
        "touch nvidiactl",
        "mkdir pts shm",
        "ln -s /proc/self/fd fd",
        f"mount --bind {folder}/kept/pts pts",
        f"mount --bind {folder}/kept/shm shm",
        f"mount --rbind {folder}/dev /dev",
        'cd / && exec "$@"',
    ]
    return ["unshare", "--mount", "bash", "-c", "\n".join(script), "bash", *map(str, command)]
