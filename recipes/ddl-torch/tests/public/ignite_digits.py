"""As ignite's examples: idist.initialize with NCCL, its own DDP and metrics."""

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.metrics import Accuracy
from numbers_of import told
from torch.utils.data import TensorDataset

idist.initialize("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(40, 5), torch.randint(3, (40,)))
model = idist.auto_model(torch.nn.Linear(5, 3))
optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))


def step(engine: Engine, batch: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    optimizer.zero_grad()
    said = model(batch[0])
    torch.nn.functional.cross_entropy(said, batch[1]).backward()
    optimizer.step()
    return said, batch[1]


trainer = Engine(step)
accuracy = Accuracy()
accuracy.attach(trainer, "accuracy")
seen = []
trainer.add_event_handler(
    Events.EPOCH_COMPLETED, lambda engine: seen.append(engine.state.metrics["accuracy"])
)
trainer.run(idist.auto_dataloader(data, batch_size=8, shuffle=False), max_epochs=2)
told([*model.parameters(), torch.tensor(seen)])
idist.finalize()
