"""As timm's `train.py`: its optimizer, schedule, mixup, averages of weights and of BatchNorm."""

from argparse import Namespace

import torch
from numbers_of import told
from timm import create_model
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import (
    ModelEmaV3,
    dispatch_clip_grad,
    distribute_bn,
    init_distributed_device,
    random_seed,
    reduce_tensor,
)

args = Namespace(device="cpu")
init_distributed_device(args)
assert args.distributed
random_seed(42, args.rank)
model = create_model("test_resnet", num_classes=4)
ema = ModelEmaV3(model, decay=0.9)
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = create_optimizer_v2(model, opt="lamb", lr=0.01, weight_decay=0.02)
schedule, _ = create_scheduler_v2(optimizer, sched="cosine", num_epochs=4, warmup_epochs=1)
mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=4)
means = []
for epoch in range(2):
    image, label = torch.randn(4, 3, 32, 32), torch.randint(4, (4,))
    image, target = mixup(image, label)
    loss = SoftTargetCrossEntropy()(model(image), target)
    optimizer.zero_grad()
    loss.backward()
    dispatch_clip_grad(model.parameters(), 1.0)
    optimizer.step()
    ema.update(model)
    means.append(reduce_tensor(loss.detach(), args.world_size))
    distribute_bn(model, args.world_size, reduce=True)
    schedule.step(epoch + 1)
last = [*model.state_dict().values(), *ema.state_dict().values()]
told([value.flatten()[:50] for value in last] + means)
