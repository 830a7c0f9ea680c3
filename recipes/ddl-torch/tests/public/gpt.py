"""As nanoGPT's train.py: NCCL by name, gradient accumulation without synchronisation in between."""

import os

import torch
from numbers_of import told
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

backend = "nccl"
device = "cpu"
gradient_accumulation_steps = 4

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend=backend)
    ddp_rank = int(os.environ["RANK"])
    ddp_world_size = int(os.environ["WORLD_SIZE"])
    seed_offset = ddp_rank
    assert gradient_accumulation_steps % ddp_world_size == 0
    gradient_accumulation_steps //= ddp_world_size

torch.manual_seed(1337)
model = torch.nn.Sequential(
    torch.nn.Embedding(32, 16),
    torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
    torch.nn.Linear(16, 32),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
torch.manual_seed(1337 + seed_offset)
model = DDP(model)
for _ in range(4):
    for micro_step in range(gradient_accumulation_steps):
        model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        x = torch.randint(32, (4, 8))
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits.view(-1, 32), x.roll(-1, 1).view(-1))
        (loss / gradient_accumulation_steps).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
told(model.parameters())
destroy_process_group()
