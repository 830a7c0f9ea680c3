"""Lightning's Trainer by its strategy's name alone: on CPUs it asks for gloo.

    ddlrun -H localhost:2 -instead_of gloo python -m ddl_ce_smoke.research.unedited_lightning w.npy

Any number of ranks that divides the batch of 16 ends with the same weights.
"""

from __future__ import annotations

import os

import lightning
import numpy as np
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch.utils.data import DataLoader, TensorDataset

from ddl_ce_smoke.research.lightning_module import BATCH, Regression
from ddl_ce_smoke.research.run import save
from ddl_ce_smoke.research.unedited import check_backend


def train() -> np.ndarray:
    """The weights, float32 of shape [number of weights]."""
    ranks, on_this_host = (int(os.environ[name]) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    x = torch.randn(128, 8, generator=torch.Generator().manual_seed(1))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=on_this_host,
        num_nodes=ranks // on_this_host,
        strategy="ddp",
        plugins=[LightningEnvironment()],
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Regression()
    data = TensorDataset(x, x.sum(1, keepdim=True).sin())
    trainer.fit(model, DataLoader(data, BATCH // ranks))
    check_backend("gloo")
    numbers: np.ndarray = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    return numbers


if __name__ == "__main__":
    save(train, __doc__)
