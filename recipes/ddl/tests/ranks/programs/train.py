"""A tiny training on all ranks that saves itself: train.py FOLDER ENGINE [OPTIONS].

At its end each rank prints the steps that it made, and a digest of its weights.
"""

import argparse
import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from ddl.checkpoint import Checkpointer, CheckpointError

ask = argparse.ArgumentParser()
ask.add_argument("folder")
ENGINES = ["numpy", "torch", "zero", "batches", "fsdp", "fsdp1", "horovod", "keras"]
ask.add_argument("engine", choices=ENGINES)
ask.add_argument("--steps", type=int, default=12)
ask.add_argument("--signal", nargs="*", default=[], help="RANK:STEP:NAME, from inside that step")
ask.add_argument("--every", type=int, default=1)
ask.add_argument("--save-every", type=int)
ask.add_argument("--keep", type=int, default=2)
ask.add_argument("--average", action="store_true", help="ask along with the loss")
ask.add_argument("--forget", action="store_true", help="do not call step()")
ask.add_argument("--pause", type=float, default=0, help="seconds of each step")
ask.add_argument("--die", help="RANK:STEP at which a rank kills itself")
ask.add_argument("--width", type=int, default=8, help="of the model")
options = ask.parse_args()
first_step = last_step = -1


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def disturb(step: int) -> None:
    """Do what was ordered for this step."""
    global first_step, last_step
    first_step = step if first_step < 0 else first_step
    last_step = step
    for order in options.signal:
        who, when, name = order.split(":")
        if (int(who), int(when)) == (rank(), step):
            os.kill(os.getpid(), signal.Signals[name])
    if options.die == f"{rank()}:{step}":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(options.pause)


def settings() -> dict[str, Any]:
    return {"every": options.every, "save_every": options.save_every, "keep": options.keep}


def finish(saver: Checkpointer, loss: Any) -> None:
    if options.average:
        mean = saver.average(loss)
        assert type(mean) is type(loss), (mean, loss)
    if not options.forget:
        saver.step()


class Weights:
    """A model without a framework."""

    def __init__(self) -> None:
        self.values = np.zeros(options.width, np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "shape": (options.width,)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["shape"] != (options.width,):
            raise ValueError(f"its width is {state['shape'][0]}")
        self.values[:] = state["values"]


def with_numpy() -> list[np.ndarray]:
    import ddl

    ddl.init()
    np.random.seed(ddl.rank())
    model = Weights()
    with Checkpointer(options.folder, model=model, **settings()) as saver:
        for step in saver.steps(options.steps):
            disturb(step)
            noise = np.random.standard_normal(options.width).astype(np.float32)
            model.values += ddl.allreduce(noise, "average")
            finish(saver, np.float64(step).item())
    assert "torch" not in sys.modules
    return [model.values]


def torch_model() -> Any:
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    nn = torch.nn
    return nn.Sequential(nn.Linear(8, options.width), nn.Dropout(0.5), nn.Linear(options.width, 3))


def with_torch(zero: bool = False) -> list[np.ndarray]:
    import torch
    import torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("ddl")
    model = DistributedDataParallel(torch_model())
    torch.manual_seed(dist.get_rank())
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if zero:  # each rank has the state of some weights
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    objects = {"model": model, "optimizer": optimizer, "rate": rate}
    with Checkpointer(options.folder, **objects, **settings()) as saver:
        for step in saver.steps(options.steps):
            disturb(step)
            optimizer.zero_grad()
            loss = model(torch.randn(4, 8)).square().mean()
            loss.backward()
            optimizer.step()
            rate.step()
            finish(saver, loss.detach())
    weights = [value.numpy() for value in model.state_dict().values()]
    dist.destroy_process_group()
    return weights


def with_zero() -> list[np.ndarray]:
    return with_torch(zero=True)


def with_batches() -> list[np.ndarray]:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    dist.init_process_group("ddl")
    model = DistributedDataParallel(torch_model())
    torch.manual_seed(dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = TensorDataset(torch.arange(8 * 40, dtype=torch.float32).reshape(40, 8).sin())
    loader = DataLoader(data, 4, sampler=DistributedSampler(data))
    with Checkpointer(options.folder, model=model, optimizer=optimizer, **settings()) as saver:
        for (x,) in saver.batches(loader, epochs=options.steps // len(loader)):
            disturb(saver.steps_done)
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            finish(saver, loss.detach())
    weights = [value.numpy() for value in model.state_dict().values()]
    dist.destroy_process_group()
    return weights


def with_fsdp(first: bool = False) -> list[np.ndarray]:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    dist.init_process_group("ddl")
    model = torch_model()
    if first:
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    else:
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    torch.manual_seed(dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with Checkpointer(options.folder, model=model, optimizer=optimizer, **settings()) as saver:
        for step in saver.steps(options.steps):
            disturb(step)
            optimizer.zero_grad()
            loss = model(torch.randn(4, 8)).square().mean()
            loss.backward()
            optimizer.step()
            finish(saver, loss.detach())
    found = model.state_dict().values()
    weights = [(value if first else value.full_tensor()).numpy() for value in found]
    dist.destroy_process_group()
    return weights


def with_fsdp1() -> list[np.ndarray]:
    return with_fsdp(first=True)


def with_horovod() -> list[np.ndarray]:
    import horovod.torch as hvd
    import torch

    hvd.init()
    model = torch_model()
    torch.manual_seed(hvd.rank())
    plain = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, losses=[])
    with Checkpointer(options.folder, state=state, **settings()) as saver:
        for step in saver.steps(options.steps):
            disturb(step)
            optimizer.zero_grad()
            loss = model(torch.randn(4, 8)).square().mean()
            loss.backward()
            optimizer.step()
            state.losses = [*state.losses, loss.item()]
            finish(saver, loss.detach())
    assert len(state.losses) == options.steps
    weights = [value.numpy() for value in model.state_dict().values()]
    hvd.shutdown()
    return weights


def with_keras() -> list[np.ndarray]:
    import ddl
    import keras
    from ddl.checkpoint import KerasCheckpoint

    keras.utils.set_random_seed(0)
    x = np.sin(np.arange(8 * 40, dtype=np.float32)).reshape(40, 8)[ddl.rank() :: ddl.size()]
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(options.width), keras.layers.Dropout(0.5)]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    disturber = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda *_, **__: disturb(int(model.optimizer.iterations))
    )
    saver = KerasCheckpoint(options.folder, **settings())
    callbacks = [ddl.DDLCallback(), disturber, saver, ddl.DDLGlobalVariablesCallback()]
    each = 4 * ddl.size()
    model.fit(
        *(x, x[:, : options.width]),
        batch_size=4,
        epochs=options.steps * each // 40,
        shuffle=False,
        callbacks=callbacks,
        verbose=0,
    )
    return [np.asarray(weights) for weights in model.get_weights()]


Path(options.folder).parent.mkdir(exist_ok=True)
try:
    arrays = globals()[f"with_{options.engine}"]()
except CheckpointError as error:
    sys.exit(f"error: {error}")
finally:
    print(f"rank {rank()} made steps {first_step} to {last_step}", flush=True)
digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
print(f"rank {rank()} has weights {digest}", flush=True)
