"""As DeepSpeed's CIFAR example: its own process group, configuration and loader."""

import deepspeed
import torch
from numbers_of import told

deepspeed.init_distributed()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
images = torch.utils.data.TensorDataset(torch.randn(32, 12), torch.randint(4, (32,)))
engine, _, loader, _ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    training_data=images,
    config={
        "train_batch_size": 8,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4}},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 2, "overlap_comm": True},
    },
)
for image, label in loader:
    loss = torch.nn.functional.cross_entropy(engine(image), label)
    engine.backward(loss)
    engine.step()
told([*model.parameters(), loss])
engine.destroy()
