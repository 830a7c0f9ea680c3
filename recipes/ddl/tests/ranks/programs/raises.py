"""An object whose state cannot be had on one rank, for once: raises.py FOLDER RANK."""

import sys
from typing import Any

import ddl
from ddl.checkpoint import Checkpointer, CheckpointError

ddl.init()


class Moody:
    broken = False

    def state_dict(self) -> dict[str, Any]:
        if self.broken:
            raise ValueError("it is in\nno mood")
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if ddl.rank() == int(sys.argv[2]):
            raise KeyboardInterrupt


moody = Moody()
with Checkpointer(sys.argv[1], moody=moody) as saver:
    moody.broken = True
    try:
        saver.save()
    except (ValueError, CheckpointError) as error:
        print(f"rank {ddl.rank()}: {type(error).__name__}", *str(error).split(), flush=True)
    moody.broken = False
try:
    Checkpointer(sys.argv[1], moody=moody).__enter__()
except (KeyboardInterrupt, CheckpointError) as error:
    print(f"rank {ddl.rank()}: {type(error).__name__}", *str(error).split(), flush=True)
