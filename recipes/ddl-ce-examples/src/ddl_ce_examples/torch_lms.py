"""PyTorch on ddl within a share of the memory that the model asks for: Large Model Support.

    ddlrun -H localhost:2 python -m ddl_ce_examples.torch_lms --share 0.6

`torch_ddp` says how a program for one process becomes one for many; three more lines, numbered
below, let it run where the memory does not suffice. Without a GPU it trains on LMS's simulated
device: real numbers, a meter of bytes and a clock.
"""

import argparse
import os
from contextlib import nullcontext

import lms
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddl_ce_examples import digits

BATCH = 96  # on each rank
EPOCHS = 30


def network() -> nn.Sequential:
    """Convolutions, in blocks."""

    def block(inside: int, outside: int) -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(4, outside), nn.ReLU()),
            *(nn.Conv2d(outside, outside, 3, padding=1), nn.GroupNorm(4, outside), nn.ReLU()),
        )

    blocks = nn.Sequential(block(1, 16), block(16, 16), block(16, 32), block(32, 32))
    return nn.Sequential(blocks, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 4 * 4, 10))


def main() -> nn.Module:
    """Trains on all ranks; rank 0 prints. Returns the model."""
    ask = argparse.ArgumentParser(description="Handwritten digits in little memory.")
    ask.add_argument("--share", type=float, default=0.6, help="of the memory (default: 0.6)")
    share = ask.parse_args().share
    if not share > 0:
        ask.error(f"--share must be above 0, not {share:g}")

    torch.manual_seed(0)
    torch.set_num_threads(1)
    if "RANK" not in os.environ:
        ask.error("start me with ddlrun: ddlrun -H localhost:2 python -m ddl_ce_examples.torch_lms")
    dist.init_process_group("ddl")
    rank, size = dist.get_rank(), dist.get_world_size()
    on_gpu = torch.cuda.is_available()
    where = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    simulated = None if on_gpu else lms.SimulatedDevice()
    train, (x_test, y_test) = digits.load()
    even = len(train[0]) // size * size  # as many samples on each rank
    x, y = (torch.from_numpy(part[rank:even:size].copy()) for part in train)
    images, labels = x.movedim(3, 1).to(where), y.to(where)

    model = network().to(where)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 * size)

    def epoch() -> float:
        order = torch.randperm(len(labels))
        for part in order[: len(order) // BATCH * BATCH].split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(images[part]), labels[part])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return loss.item()

    with simulated or nullcontext():
        epoch()  # without LMS: what does it ask for?
        demand = simulated.highest if simulated else torch.cuda.max_memory_reserved()

        # 1. Say how much there is. On a real GPU it is all, if you say nothing.
        lms.enable(limit=int(share * demand), smallest="64KiB", device=simulated)
        # 2. Name the layers that may be computed again, where that is faster than copying.
        lms.recompute(model[0])
        for number in range(1, EPOCHS):  # the first was without
            loss = epoch()
            if rank == 0:
                print(f"epoch {number + 1}/{EPOCHS}, loss {loss:.4f}", flush=True)
        # 3. See what it does.
        if rank == 0:
            print(lms.report())
        lms.disable()

    if rank == 0:
        model.eval()
        with torch.no_grad():
            found = model(torch.from_numpy(x_test).movedim(3, 1).to(where)).argmax(1)
        accuracy = (found.cpu() == torch.from_numpy(y_test)).float().mean()
        print(f"test accuracy: {accuracy:.4f}", flush=True)
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    main()
