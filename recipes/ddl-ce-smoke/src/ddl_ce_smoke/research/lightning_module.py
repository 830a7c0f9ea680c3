"""Lightning's Trainer on the ranks that ddlrun started, with the backend ddl.

ddlrun -H localhost:2 python -m ddl_ce_smoke.research.lightning_module weights.npy
"""

from __future__ import annotations

import os

import lightning
import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

from ddl_ce_smoke.research.run import save

BATCH = 16


class Regression(lightning.LightningModule):
    """Two layers. Lightning shuffles the samples of several ranks, and those of one rank not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        )

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """The loss of one rank's part of the batch."""
        x, y = batch
        return torch.nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD, so that rounding does not grow."""
        return torch.optim.SGD(self.parameters(), 0.1)


def train() -> np.ndarray:
    """The weights, float32 of shape [number of weights]."""
    ranks, on_this_host = (int(os.environ[name]) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(128, 8, generator=generator)
    data = TensorDataset(x, x.sum(1, keepdim=True).sin())
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=on_this_host,
        num_nodes=ranks // on_this_host,
        strategy=DDPStrategy(process_group_backend="ddl"),
        plugins=[LightningEnvironment()],
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Regression()
    trainer.fit(model, DataLoader(data, BATCH // ranks))
    assert dist.get_backend() == "ddl"
    assert trainer.world_size == ranks
    numbers: np.ndarray = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    return numbers


if __name__ == "__main__":
    save(train, __doc__)
