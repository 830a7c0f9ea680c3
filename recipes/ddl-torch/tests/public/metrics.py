"""torchmetrics over the ranks: they bring together lists whose lengths differ."""

import torch
import torch.distributed as dist
import torchmetrics
from numbers_of import told

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=4)
accuracy.update(torch.randint(4, (20 + rank,)), torch.randint(4, (20 + rank,)))
curve = torchmetrics.CatMetric()
curve.update(torch.rand(3 + 2 * rank))
told([accuracy.compute(), curve.compute()])
dist.destroy_process_group()
