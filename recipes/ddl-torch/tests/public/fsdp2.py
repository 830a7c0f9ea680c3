"""As the FSDP2 example: layers sharded one by one, mixed precision, a checkpoint by DCP."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from numbers_of import told
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

device_type = torch.accelerator.current_accelerator() or torch.device("cpu")
dist.init_process_group(backend=dist.get_default_backend_for_device(device_type))
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(4)))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
assert isinstance(model, FSDPModule)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
torch.manual_seed(dist.get_rank() + 1)
for _ in range(3):
    loss = model(torch.randn(8, 16)).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder, 0)
weights, state = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder[0])
dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder[0])
set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
told([parameter.full_tensor() for parameter in model.parameters()])
dist.destroy_process_group()
