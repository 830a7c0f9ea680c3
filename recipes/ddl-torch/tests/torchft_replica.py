"""One replica of a training with torchft, without an end: `torchft_replica.py NAME`.

After each step it prints the step's number, how many replicas made it, and its weights' sum.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from ddl_torch.torchft import DistributedDataParallel, ProcessGroupDDL
from torchft import Manager, Optimizer


def main() -> None:
    name = sys.argv[1]
    group = ProcessGroupDDL(timeout=timedelta(seconds=60))
    server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(int(name))  # each begins with weights of its own: torchft makes them equal
    model = torch.nn.Linear(64, 20_000)  # most of a step is the allreduce
    adam = torch.optim.Adam(model.parameters())

    def load(state: dict[str, dict[str, object]]) -> None:
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])

    manager = Manager(
        pg=group,
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "adam": adam.state_dict()},
        min_replica_size=1,
        replica_id=name,
        store_addr="localhost",
        store_port=server.port,
        rank=0,
        world_size=1,
    )
    trained = DistributedDataParallel(manager, model)
    optimizer = Optimizer(manager, adam)
    while True:
        optimizer.zero_grad()
        trained(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        weights = sum(float(p.double().sum()) for p in model.parameters())
        print(manager.current_step(), manager.num_participants(), weights, flush=True)


if __name__ == "__main__":
    main()
