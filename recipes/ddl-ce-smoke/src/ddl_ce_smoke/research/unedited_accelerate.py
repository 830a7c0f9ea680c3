"""A loop of accelerate's on CPUs as its user has it, without a word about the backend.

    ddlrun -H localhost:2 -instead_of gloo python -m ddl_ce_smoke.research.unedited_accelerate w.npy

Any number of ranks that divides the batch of 8 ends with the same weights.
"""

from __future__ import annotations

import numpy as np
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from ddl_ce_smoke.research.run import save
from ddl_ce_smoke.research.unedited import check_backend

BATCH = 8


def train() -> np.ndarray:
    """The weights, float32 of shape [number of weights]."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    x = torch.randn(64, 6)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, BATCH // accelerator.num_processes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for inputs, wanted in loader:
        accelerator.backward(torch.nn.functional.mse_loss(model(inputs), wanted))
        optimizer.step()
        optimizer.zero_grad()
    check_backend("gloo")
    weights = accelerator.unwrap_model(model).parameters()
    numbers: np.ndarray = torch.cat([p.detach().flatten() for p in weights]).numpy()
    return numbers


if __name__ == "__main__":
    save(train, __doc__)
