"""As accelerate's nlp_example: its own launcher's variables, no backend, metrics of all ranks."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from numbers_of import told
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
set_seed(42)
data = TensorDataset(torch.randn(50, 6), torch.randint(2, (50,)))
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
train, evaluate = DataLoader(data, 4, shuffle=True), DataLoader(data, 8)
model, optimizer, train, evaluate = accelerator.prepare(model, optimizer, train, evaluate)
for _ in range(2):
    model.train()
    for x, y in train:
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    said = []
    for x, y in evaluate:
        with torch.no_grad():
            predictions = model(x).argmax(-1)
        said.append(torch.stack(accelerator.gather_for_metrics((predictions, y)), -1))
    assert sum(map(len, said)) == 50
accelerator.wait_for_everyone()
assert accelerator.num_processes == 2
told([*accelerator.unwrap_model(model).parameters(), torch.cat(said)])
accelerator.end_training()
