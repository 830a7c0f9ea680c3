"""A program that names no backend, and has its sums in a helper of its own."""

import torch
import torch.distributed as dist
from numbers_of import told

dist.init_process_group()
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(10, 3)
for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)


def average_gradients(model: torch.nn.Module) -> None:
    size = float(dist.get_world_size())
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad.data, op=dist.ReduceOp.SUM)
        parameter.grad.data /= size


optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 10)).square().mean().backward()
    average_gradients(model)
    optimizer.step()
told(model.parameters())
