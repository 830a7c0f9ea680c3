"""As the imagenet example: NCCL, env://, meters that are summed, a sampler, rank 0's checkpoint."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from numbers_of import told
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--dist-url", default="env://")
parser.add_argument("--dist-backend", default="nccl")
parser.add_argument("--batch-size", default=16, type=int)
args = parser.parse_args()


class AverageMeter:
    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0

    def update(self, value: float, n: int) -> None:
        self.sum += value * n
        self.count += n

    def all_reduce(self) -> float:
        device = torch.device("cpu")
        total = torch.tensor([self.sum, self.count], dtype=torch.float32, device=device)
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()
        return self.sum / self.count


dist.init_process_group(
    backend=args.dist_backend,
    init_method=args.dist_url,
    world_size=int(os.environ["WORLD_SIZE"]),
    rank=int(os.environ["RANK"]),
)
torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(8 * 36, 5),
)  # fmt: skip
data = TensorDataset(torch.randn(70, 3, 8, 8), torch.randint(5, (70,)))
model = torch.nn.parallel.DistributedDataParallel(model)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
train_sampler = DistributedSampler(data)
val_sampler = DistributedSampler(data, shuffle=False, drop_last=True)
losses = AverageMeter()
for epoch in range(2):
    train_sampler.set_epoch(epoch)
    for images, target in DataLoader(data, args.batch_size, sampler=train_sampler):
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
model.eval()
with torch.no_grad():
    for images, target in DataLoader(data, args.batch_size, sampler=val_sampler):
        losses.update(criterion(model(images), target).item(), len(target))
    rest = range(len(val_sampler) * dist.get_world_size(), len(data))
    for images, target in DataLoader(Subset(data, rest), args.batch_size):
        losses.update(criterion(model(images), target).item(), len(target))
mean = losses.all_reduce()
with tempfile.TemporaryDirectory() as folder:
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), f"{folder}/checkpoint.pth.tar")
    dist.barrier()
told([*model.parameters(), torch.tensor(mean)])
dist.destroy_process_group()
