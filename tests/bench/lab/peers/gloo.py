"""Gloo, as torch.distributed runs it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from bench.environment import built
from bench.lab.network import Lab
from bench.lab.peers.base import DEVICE, Start
from support.pip import Unavailable

WORKER = Path(__file__).parents[1] / "workers" / "allreduce_gloo.py"


def python_with_torch(prefix: Path | None) -> Path:
    """A prefix's Python, or the built environment's.

    Raises:
        Unavailable: it has no PyTorch.
    """
    python = (prefix or built()).absolute() / "bin" / "python"
    if not python.exists():
        raise Unavailable(f"{python} is not there; run make")
    ask = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    if subprocess.run([python, "-c", ask], check=False).returncode:
        raise Unavailable(f"{python} has no PyTorch")
    return python


class Gloo:
    """The backend gloo of an environment's PyTorch."""

    name = "gloo"

    def __init__(self, prefix: Path | None = None) -> None:
        """PyTorch of a prefix, by default the built environment's."""
        self._prefix = prefix

    def prepare(self) -> None:
        """Looks for PyTorch."""
        self._python = python_with_torch(self._prefix)

    def start(self, lab: Lab, hosts: list[str], arguments: list[str]) -> Start:
        """A process for each rank, started directly; the store is on the first rank's host."""
        store = f"tcp://{lab.address(hosts[0])}:29500"
        worker = [str(self._python), str(WORKER), *arguments, store]
        ranks = [
            shlex.join([str(lab.launcher), host, shlex.join([*worker, str(rank), str(len(hosts))])])
            for rank, host in enumerate(hosts)
        ]
        # Before other load from the start: every rank takes seconds to import torch.
        lines = ["chrt --rr --pid 1 $$ || true", *(f"{rank} &" for rank in ranks), "wait"]
        script = lab.folder / "start"
        script.write_text("\n".join(lines) + "\n")
        return Start(["sh", str(script)], {"GLOO_SOCKET_IFNAME": DEVICE, "OMP_NUM_THREADS": "1"})
