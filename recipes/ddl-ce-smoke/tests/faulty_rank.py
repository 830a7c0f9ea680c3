"""Runs a rank program of the suite with a fault on rank 1: `faulty_rank.py FAULT MODULE ARG...`.

The faults are here, and not behind a switch of the shipped package.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from ddl_ce_smoke import rank

#: The faults strike when rank 1 is in the middle of its work.
STRIKE_AT = 12


def at_work(strike: Callable[[], object]) -> None:
    """Calls `strike` at the STRIKE_AT-th step of the journal."""
    write, steps = rank.Journal.write, [0]

    def striking(self: rank.Journal, event: str, **fields: Any) -> None:
        write(self, event, **fields)
        steps[0] += event == "at"
        if steps[0] == STRIKE_AT:
            strike()

    rank.Journal.write = striking  # type: ignore[method-assign]


def flip_result_of(name: str) -> None:
    """One wrong element in the middle of each longer result of a collective."""
    from ddl_ce_smoke.adapters import DdlAdapter

    method = getattr(DdlAdapter, name)

    def flipped(*args: Any) -> Any:
        tensor = method(*args)
        if len(tensor) > 100:
            tensor[len(tensor) // 2] *= -1
            tensor[len(tensor) // 2] += 1
        return tensor

    setattr(DdlAdapter, name, flipped)


def fail() -> None:
    """As a bug in a program would."""
    raise RuntimeError("a fault in rank 1")


def sum_gradients() -> None:
    """DDP that forgets to divide by the number of ranks. On every rank."""
    import torch.distributed as dist
    from ddl_ce_smoke import train

    def hook(state, bucket):  # noqa: ANN001, ANN202 (torch compares the annotations)
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda future: bucket.buffer())

    init = train.Trainer.__init__

    def hooked(self: Any, *args: Any) -> None:
        init(self, *args)
        self.model.register_comm_hook(None, hook)

    train.Trainer.__init__ = hooked  # type: ignore[method-assign]


def drift() -> None:
    """One weight of rank 1 is off by the least bit after training."""
    import torch
    from ddl_ce_smoke import train

    def nudge(accuracy: float, trainer: Any) -> float:
        weight = next(trainer.model.parameters()).data.view(-1)
        weight[0] = torch.nextafter(weight[0], torch.tensor(9.0))
        return accuracy

    accuracy = train.Trainer.accuracy
    train.Trainer.accuracy = lambda self: nudge(accuracy(self), self)  # type: ignore[method-assign]


def no_barrier() -> None:
    """A barrier that waits for nobody. On every rank."""
    from ddl_ce_smoke.adapters import DdlAdapter

    DdlAdapter.barrier = lambda self: None  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[], object]] = {
    "none": lambda: None,
    "kill": lambda: at_work(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "stop": lambda: at_work(lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    "sleep": lambda: at_work(lambda: time.sleep(3600)),
    "exit3": lambda: at_work(lambda: os._exit(3)),
    "raise": lambda: at_work(fail),
    "drift": drift,
    "wrong allreduce": lambda: flip_result_of("allreduce"),
    "wrong broadcast": lambda: flip_result_of("broadcast"),
    "wrong allgather": lambda: flip_result_of("allgather"),
    "wrong reduce-scatter": lambda: flip_result_of("reduce_scatter"),
}
EVERYWHERE: dict[str, Callable[[], object]] = {
    "summed gradients": sum_gradients,
    "no barrier": no_barrier,
    "all sleep": lambda: at_work(lambda: time.sleep(3600)),
}

if __name__ == "__main__":
    name, module, *arguments = sys.argv[1:]
    if name in EVERYWHERE:
        EVERYWHERE[name]()
    elif os.environ["RANK"] == "1":
        FAULTS[name]()
    sys.exit(importlib.import_module(module).main(arguments))
