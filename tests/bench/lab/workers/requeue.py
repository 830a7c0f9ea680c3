"""A tiny training that is interrupted again and again: requeue.py FOLDER PAUSE.

FOLDER/total has the number of steps. Rank 0 appends to FOLDER/starts the steps that were done at
each start, and to FOLDER/progress each step; at the end, every rank writes its weights.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import ddl
import numpy as np
from ddl.checkpoint import Checkpointer


class Weights:
    """A model of a few numbers."""

    def __init__(self) -> None:
        self.values = np.zeros(256, np.float32)

    def state_dict(self) -> dict[str, Any]:
        """The numbers."""
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them."""
        self.values[:] = state["values"]


def main() -> None:
    """Train, or go on."""
    folder, pause = Path(sys.argv[1]), float(sys.argv[2])
    ddl.init()
    total = int((folder / "total").read_text())
    np.random.seed(ddl.rank())
    model = Weights()
    with (
        Checkpointer(folder / "saved", model=model, save_every=3) as saver,
        (folder / f"progress.{ddl.rank()}").open("a", buffering=1) as progress,
    ):
        if ddl.rank() == 0:
            with (folder / "starts").open("a") as starts:
                starts.write(f"{saver.steps_done}\n")
        for step in saver.steps(total):
            noise = np.random.standard_normal(256).astype(np.float32)
            model.values += ddl.allreduce(noise, "average")
            progress.write(f"{step + 1}\n")
            time.sleep(pause)
            saver.step()
    (folder / f"weights.{ddl.rank()}").write_bytes(model.values.tobytes())


if __name__ == "__main__":
    main()
