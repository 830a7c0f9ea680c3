"""Gloo, as torch.distributed runs it."""

from __future__ import annotations

import shlex
from pathlib import Path

from bench.lab.network import Lab
from bench.lab.peers.base import DEVICE, Start, Unavailable
from bench.lab.peers.ddl import built

WORKER = Path(__file__).parents[1] / "workers" / "allreduce_gloo.py"


class Gloo:
    """The backend gloo of the built environment's PyTorch."""

    name = "gloo"

    def prepare(self) -> None:
        """Looks for PyTorch."""
        self._python = built().resolve() / "bin" / "python"
        if not self._python.exists():
            raise Unavailable(f"{self._python} is not there; run make")

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
