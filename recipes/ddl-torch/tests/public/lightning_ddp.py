"""Lightning's Trainer by the name of its strategy; it takes gloo on the CPU by itself."""

import lightning
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from numbers_of import told
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        )

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.01)


lightning.seed_everything(3, verbose=False)
x = torch.randn(64, 8)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    plugins=[LightningEnvironment()],
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Regression()
trainer.fit(model, DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 8))
assert trainer.world_size == 2
told([*model.parameters(), trainer.callback_metrics["loss"]])
