"""As the recipe of ZeroRedundancyOptimizer: Gloo by name, a state that is brought together."""

import torch
import torch.distributed as dist
from numbers_of import told
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Sequential(*[torch.nn.Linear(20, 20) for _ in range(5)]))
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    model(torch.randn(20, 20)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
optimizer.consolidate_state_dict(to=0)
state = optimizer.state_dict()["state"] if dist.get_rank() == 0 else {}
told([*model.parameters(), *[entry["exp_avg"] for entry in state.values()]])
