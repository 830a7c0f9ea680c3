"""As Keras' guide of training with PyTorch on several devices: NCCL, a Keras model in DDP."""

import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import torch
import torch.distributed as dist
from numbers_of import told

dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=2)
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])
model.build((None, 6))
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = torch.nn.CrossEntropyLoss()
torch.manual_seed(dist.get_rank())
for _ in range(4):
    loss = loss_fn(ddp(torch.randn(8, 6)), torch.randint(2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
told(model.parameters())
dist.destroy_process_group()
