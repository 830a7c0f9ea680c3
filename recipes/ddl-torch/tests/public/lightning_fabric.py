"""Lightning's Fabric around a loop of one's own."""

import lightning
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from numbers_of import told
from torch.utils.data import DataLoader, TensorDataset

fabric = lightning.Fabric(
    accelerator="cpu", devices=2, strategy="ddp", plugins=[LightningEnvironment()]
)
fabric.launch()
fabric.seed_everything(5, verbose=False)
model = torch.nn.Linear(4, 2)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.randn(32, 4)), 4))
for (x,) in loader:
    optimizer.zero_grad()
    fabric.backward(model(x).square().mean())
    optimizer.step()
everyone = fabric.all_gather(torch.tensor(float(fabric.global_rank)))
told([*model.parameters(), everyone])
