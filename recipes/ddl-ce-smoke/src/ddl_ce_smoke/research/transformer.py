"""A small transformer, made from a configuration, is fine-tuned by LoRA with transformers' Trainer.

    ddlrun -H localhost:2 python -m ddl_ce_smoke.research.transformer weights.npy

Any number of ranks that divides the batch of 8 ends with the same weights.
"""

from __future__ import annotations

import tempfile

import numpy as np
import torch
import torch.distributed as dist
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from ddl_ce_smoke.research.run import save

BATCH, STEPS = 8, 4


def train() -> np.ndarray:
    """The adapter's weights, float32 of shape [number of weights]."""
    # Before the Trainer is made: on CPUs, accelerate would make a group of gloo's.
    dist.init_process_group("ddl")
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64,
        n_positions=16,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    lora = LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    model = get_peft_model(GPT2LMHeadModel(config), lora)
    tokens = torch.randint(64, (64, 16)).tolist()
    data = Dataset.from_dict({"input_ids": tokens, "labels": tokens})
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH // dist.get_world_size(),
            max_steps=STEPS,
            learning_rate=0.5,
            optim="sgd",
            use_cpu=True,
            ddp_find_unused_parameters=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=data)
        assert trainer.accelerator.num_processes == dist.get_world_size()
        trainer.train()
    assert dist.get_backend() == "ddl"
    weights = [p.detach().flatten() for p in model.parameters() if p.requires_grad]
    dist.destroy_process_group()
    numbers: np.ndarray = torch.cat(weights).numpy()
    return numbers


if __name__ == "__main__":
    save(train, __doc__)
