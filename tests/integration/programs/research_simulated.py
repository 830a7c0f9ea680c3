"""Run by ddlrun: programs of research as their users have them, which take the GPUs that they find.

    research_simulated.py trainer|adapter|lightning DEVICE WEIGHTS.npy

They name no backend, so that accelerate and Lightning ask for nccl. Any number of ranks that
divides the batch ends with the weights of one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable

import lightning
import numpy as np
import torch
import torch.distributed as dist
from ddl_ce_smoke.research.lightning_module import BATCH, Regression
from ddl_ce_smoke.research.unedited_trainer import Words
from lightning.pytorch.plugins.environments import LightningEnvironment
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

RANKS = int(os.environ.get("WORLD_SIZE", "1"))

# The simulation computes by PyTorch's kernels for the CPU, which has none for fused attention.
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)


def gpt() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = GPT2Config(bos_token_id=0, eos_token_id=0, **sizes)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    return GPT2LMHeadModel(config)


def by_trainer(model: nn.Module, device: str) -> Iterable[nn.Parameter]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=8 // RANKS,
            max_steps=3,
            learning_rate=0.1,
            optim="sgd",
            use_cpu=device == "cpu",
            ddp_find_unused_parameters=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=Words())
        trainer.train()
    assert trainer.accelerator.num_processes == RANKS
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def trainer(device: str) -> Iterable[nn.Parameter]:
    return by_trainer(gpt(), device)


def adapter(device: str) -> Iterable[nn.Parameter]:
    lora = LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    return by_trainer(get_peft_model(gpt(), lora), device)


def by_lightning(device: str) -> Iterable[nn.Parameter]:
    x = torch.randn(128, 8, generator=torch.Generator().manual_seed(1))
    trainer = lightning.Trainer(
        accelerator="cpu" if device == "cpu" else "gpu",
        devices=RANKS,
        strategy="ddp" if RANKS > 1 else "auto",
        plugins=[LightningEnvironment()],
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # its own shuffles, and one rank's does not
    )
    model = Regression()
    data = TensorDataset(x, x.sum(1, keepdim=True).sin())
    rank = int(os.environ.get("RANK", "0"))
    sampler = DistributedSampler(data, RANKS, rank, shuffle=False)
    trainer.fit(model, DataLoader(data, BATCH // RANKS, sampler=sampler))
    if device == "cuda":
        assert trainer.strategy.root_device.type == "cuda"
    return model.parameters()


PROGRAMS: dict[str, Callable[[str], Iterable[nn.Parameter]]] = {
    "trainer": trainer,
    "adapter": adapter,
    "lightning": by_lightning,
}

program, device, target = sys.argv[1:]
weights = [parameter.detach().cpu().flatten() for parameter in PROGRAMS[program](device)]
if RANKS > 1:
    group = dist.group.WORLD
    assert group is not None
    assert dist.get_backend() == "nccl"
    assert group._get_backend(torch.device("cuda")).name() == "ddl"
if int(os.environ.get("RANK", "0")) == 0:
    np.save(target, torch.cat(weights).numpy())
