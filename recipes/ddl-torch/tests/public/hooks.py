"""As the documents of DDP's communication hooks: fp16 first, then PowerSGD, on one bucket."""

import torch
import torch.distributed as dist
from numbers_of import told
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
torch.manual_seed(0)
plain = DDP(torch.nn.Linear(64, 64))
plain.register_comm_hook(None, default_hooks.fp16_compress_hook)
small = DDP(torch.nn.Linear(64, 64))
state = powersgd.PowerSGDState(
    process_group=None, matrix_approximation_rank=2, start_powerSGD_iter=2
)
small.register_comm_hook(state, powersgd.powerSGD_hook)
torch.manual_seed(dist.get_rank())
for model in (plain, small):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
told([*plain.parameters(), *small.parameters()])
dist.destroy_process_group()
