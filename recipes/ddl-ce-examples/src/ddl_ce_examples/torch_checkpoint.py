"""PyTorch's DistributedDataParallel on ddl, in a job that may be preempted and started again.

    ddlrun -H localhost:4 python -m ddl_ce_examples.torch_checkpoint saved

Three steps make a training survive its job: they are numbered below. Start it, send SIGUSR1 to
ddlrun, and start it again: it goes on after the step at which it has stopped.
"""

import argparse
import os

import torch
import torch.distributed as dist
from ddl.checkpoint import Checkpointer
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ddl_ce_examples import digits

BATCH = 16  # on each rank
EPOCHS = 15


def network() -> nn.Module:
    """Two convolutions and two dense layers."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(32 * 4 * 4, 128), nn.ReLU(), nn.Dropout(0.1)),
        nn.Linear(128, 10),
    )


def main() -> nn.Module:
    """Trains on all ranks; rank 0 prints. Returns the model."""
    ask = argparse.ArgumentParser(description="Handwritten digits in a job that may be preempted.")
    ask.add_argument("folder", help="for the checkpoints of this job, seen by all its hosts")
    folder = ask.parse_args().folder
    if "RANK" not in os.environ:
        ask.error(
            "start me with ddlrun: ddlrun -H localhost:2 python -m "
            "ddl_ce_examples.torch_checkpoint saved"
        )

    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is not faster with more
    dist.init_process_group("ddl")
    rank, size = dist.get_rank(), dist.get_world_size()

    # 1. Shuffle by a DistributedSampler: its order follows from the epoch's number alone.
    (x, y), (x_test, y_test) = digits.load()
    train = TensorDataset(torch.from_numpy(x).movedim(3, 1), torch.from_numpy(y))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(train)
    loader = DataLoader(train, BATCH, sampler=sampler)

    model = network()
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 * size)

    # 2. Name what is to be saved. Entered, it loads the newest checkpoint, if there is one.
    with Checkpointer(folder, model=model, optimizer=optimizer, save_every=100) as saver:
        for images, labels in saver.batches(loader, EPOCHS):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            epoch, rest = divmod(saver.steps_done + 1, len(loader))
            if rank == 0 and rest == 0:
                print(f"epoch {epoch}/{EPOCHS}, loss {loss.item():.4f}", flush=True)
            saver.step()  # 3. End each step so: if a rank has got a signal, all save and end.

    if rank == 0:
        model.eval()
        with torch.no_grad():
            found = model(torch.from_numpy(x_test).movedim(3, 1)).argmax(1)
        accuracy = (found == torch.from_numpy(y_test)).float().mean()
        print(f"test accuracy: {accuracy:.4f}", flush=True)
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    main()
