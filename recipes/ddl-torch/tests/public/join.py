"""As the tutorial of uneven inputs: the ranks have batches of different number."""

import torch
import torch.distributed as dist
from numbers_of import told
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group(backend="nccl")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(1, 1))
inputs = [torch.tensor([float(n)]) for n in range(5 + rank)]
with model.join():
    for value in inputs:
        model(value).sum().backward()
with torch.no_grad():
    for parameter in model.parameters():
        parameter -= 0.01 * parameter.grad
told(model.parameters())
dist.destroy_process_group()
