"""As post-local SGD: averages of gradients first, of the weights every few steps afterwards."""

import torch
import torch.distributed as dist
from numbers_of import told
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(8, 8))
subgroup, _ = dist.new_subgroups(group_size=1)
state = PostLocalSGDState(process_group=None, subgroup=subgroup, start_localSGD_iter=2)
model.register_comm_hook(state, post_localSGD_hook)
optimizer = PostLocalSGDOptimizer(
    optim=torch.optim.SGD(model.parameters(), lr=0.1),
    averager=PeriodicModelAverager(period=3, warmup_steps=2),
)
torch.manual_seed(dist.get_rank())
for _ in range(9):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
told(model.parameters())
dist.destroy_process_group()
