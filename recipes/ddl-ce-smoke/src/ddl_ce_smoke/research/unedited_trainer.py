"""transformers' Trainer as its user has it: it asks for gloo by name, and hears that it has it.

    ddlrun -H localhost:2 -instead_of gloo python -m ddl_ce_smoke.research.unedited_trainer w.npy

Any number of ranks that divides the batch of 8 ends with the same weights.
"""

from __future__ import annotations

import os
import tempfile

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from ddl_ce_smoke.research.run import save
from ddl_ce_smoke.research.unedited import check_backend

BATCH, STEPS = 8, 4


class Words(torch.utils.data.Dataset[dict[str, object]]):
    """Sentences of eight words."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, object]:
        words = torch.randint(50, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


def train() -> np.ndarray:
    """The last norm's weights, float32 of shape [number of weights]."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = GPT2Config(bos_token_id=0, eos_token_id=0, **sizes)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    model = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            ddp_backend="gloo",
            per_device_train_batch_size=BATCH // int(os.environ["WORLD_SIZE"]),
            max_steps=STEPS,
            learning_rate=0.1,
            optim="sgd",
            use_cpu=True,
            ddp_find_unused_parameters=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        Trainer(model=model, args=arguments, train_dataset=Words()).train()
    check_backend("gloo")
    weights = [p.detach().flatten() for p in model.transformer.ln_f.parameters()]
    numbers: np.ndarray = torch.cat(weights).numpy()
    return numbers


if __name__ == "__main__":
    save(train, __doc__)
