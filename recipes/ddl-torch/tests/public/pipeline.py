"""As the tutorial of pipelining: two stages, micro-batches, Gloo named by the device."""

import os

import torch
import torch.distributed as dist
from numbers_of import told
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cpu")
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
torch.manual_seed(0)
layers = [torch.nn.Linear(6, 6) for _ in range(size)]
stage = PipelineStage(layers[rank], rank, size, device)
schedule = ScheduleGPipe(stage, 4, loss_fn=torch.nn.functional.mse_loss)
torch.manual_seed(1)
for _ in range(2):
    x, y = torch.rand(8, 6), torch.rand(8, 6)
    if rank == 0:
        schedule.step(x)
    else:
        losses: list[torch.Tensor] = []
        schedule.step(target=y, losses=losses)
    with torch.no_grad():
        for parameter in layers[rank].parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
told(layers[rank].parameters())
dist.destroy_process_group()
