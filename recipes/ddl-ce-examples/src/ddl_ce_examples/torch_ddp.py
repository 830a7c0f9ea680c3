"""PyTorch's DistributedDataParallel on ddl, gloo or NCCL.

    ddlrun -H localhost:4 python -m ddl_ce_examples.torch_ddp --backend ddl

Four steps make a program for one process one for many: they are numbered below.
"""

import argparse
import os

import torch
import torch.distributed as dist
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
        *(nn.Linear(32 * 4 * 4, 128), nn.ReLU()),
        nn.Linear(128, 10),
    )


def main() -> nn.Module:
    """Trains on all ranks; rank 0 prints. Returns the model."""
    ask = argparse.ArgumentParser(description="Handwritten digits on all ranks of a job.")
    ask.add_argument("--backend", choices=["ddl", "gloo", "nccl"], default="ddl")
    backend = ask.parse_args().backend
    if backend == "nccl" and not torch.cuda.is_available():
        ask.error("--backend nccl needs a GPU, and PyTorch finds none; use ddl or gloo")
    if "RANK" not in os.environ:
        ask.error("start me with ddlrun: ddlrun -H localhost:2 python -m ddl_ce_examples.torch_ddp")

    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is not faster with more

    # 1. Make the process group; ddlrun has set what it reads.
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else "cpu"

    # 2. Split the data by rank. The sampler gives all ranks as many samples.
    (x, y), (x_test, y_test) = digits.load()
    train = TensorDataset(torch.from_numpy(x).movedim(3, 1), torch.from_numpy(y))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(train)
    loader = DataLoader(train, BATCH, sampler=sampler)

    # 3. Scale the learning rate: a step is made with as many times more samples as there are ranks.
    # 4. Wrap the model: its ranks begin with the weights of rank 0 and average their gradients.
    model = network().to(device)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 * size)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # shuffles anew
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(images.to(device)), labels.to(device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch + 1}/{EPOCHS}, loss {loss.item():.4f}", flush=True)

    if rank == 0:
        with torch.no_grad():
            found = model(torch.from_numpy(x_test).movedim(3, 1).to(device)).argmax(1)
        accuracy = (found.cpu() == torch.from_numpy(y_test)).float().mean()
        print(f"test accuracy: {accuracy:.4f}", flush=True)
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    main()
