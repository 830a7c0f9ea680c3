"""An elastic job: its first worker on the host 127.0.0.1 dies at step 5; the others go on to 20.

Usage: hvd_elastic.py torch|keras. Each worker that ends prints the size of the job, the step and
the weight, which must be what 20 steps make of it, whoever has taken them.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

STEPS, DEATH, LR = 20, 5, 0.5


def maybe_die(step: int, size: int) -> None:
    if step == DEATH and size > 1 and os.environ["HOROVOD_HOSTNAME"] == "127.0.0.1":
        os.kill(os.getpid(), signal.SIGKILL)


def with_torch() -> tuple[int, int, float]:
    import torch
    from horovod import torch as hvd

    hvd.init()
    net = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=LR), net.named_parameters()
    )

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            maybe_die(state.step, hvd.size())
            state.optimizer.zero_grad()
            state.model(torch.ones(1, 1)).sum().backward()
            state.optimizer.step()
            state.step += 1
            state.commit()

    state = hvd.elastic.TorchState(net, optimizer, step=0)
    train(state)
    return hvd.size(), state.step, float(net.weight.detach())


def with_keras() -> tuple[int, int, float]:
    import keras
    import numpy as np
    from horovod import keras as hvd

    hvd.init()
    net = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(LR))
    optimizer.build(net.trainable_variables)
    net.compile(optimizer, lambda _, output: keras.ops.sum(output))

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            maybe_die(state.step, hvd.size())
            net.train_on_batch(np.ones((1, 1)), np.ones((1, 1)))
            state.step += 1
            state.commit()

    state = hvd.elastic.KerasState(net, step=0)
    train(state)
    return hvd.size(), state.step, float(net.get_weights()[0][0, 0])


if __name__ == "__main__":
    size, step, weight = {"torch": with_torch, "keras": with_keras}[sys.argv[1]]()
    print(f"ended with {size} of 2 workers at step {step}, weight {weight}", flush=True)
