"""As torch's examples of DDP today: they ask torch for the device's backend."""

import os

import torch
import torch.distributed as dist
from numbers_of import told
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def ddp_setup() -> torch.device:
    rank = int(os.environ["LOCAL_RANK"])
    if torch.accelerator.is_available():
        device = torch.device(f"{torch.accelerator.current_accelerator()}:{rank}")
        torch.accelerator.set_device_index(rank)
    else:
        device = torch.device("cpu")
    dist.init_process_group(backend=dist.get_default_backend_for_device(device))
    return device


class Trainer:
    def __init__(self, model: torch.nn.Module, data: DataLoader, device: torch.device) -> None:
        self.model = DistributedDataParallel(model.to(device))
        self.data = data
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def train(self, epochs: int) -> None:
        for epoch in range(epochs):
            self.data.sampler.set_epoch(epoch)
            for source, targets in self.data:
                self.optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(self.model(source), targets)
                loss.backward()
                self.optimizer.step()


device = ddp_setup()
torch.manual_seed(0)
data = TensorDataset(torch.rand(64, 20), torch.rand(64, 1))
loader = DataLoader(data, 8, shuffle=False, sampler=DistributedSampler(data))
trainer = Trainer(torch.nn.Linear(20, 1), loader, device)
trainer.train(3)
told(trainer.model.parameters())
dist.destroy_process_group()
