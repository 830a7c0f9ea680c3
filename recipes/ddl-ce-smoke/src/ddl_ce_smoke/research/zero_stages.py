"""DeepSpeed's ZeRO at its stages 1, 2 and 3, on the ranks of a job, with the backend ddl.

    ddlrun -H localhost:2 python -m ddl_ce_smoke.research.zero_stages weights.npy

Any number of ranks that divides the batch of 16 ends with the same weights. On CPUs no compiler is
needed: PyTorch's own optimizer takes the place of DeepSpeed's, which it compiles at first use.
"""

from __future__ import annotations

import deepspeed
import numpy as np
import torch
import torch.distributed as dist

from ddl_ce_smoke.research.run import save

BATCH, STEPS = 16, 8


def train() -> np.ndarray:
    """The weights after each stage, float32 of shape [3 * number of weights]."""
    dist.init_process_group("ddl")
    weights = np.concatenate([_with_stage(stage) for stage in (1, 2, 3)])
    assert dist.get_backend() == "ddl"
    dist.destroy_process_group()
    return weights


def _with_stage(stage: int) -> np.ndarray:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), 0.05),
        config={
            "train_batch_size": BATCH,
            "zero_optimization": {"stage": stage},
            # It has tried its own alone.
            "zero_allow_untested_optimizer": True,
        },
    )
    assert engine.zero_optimization_stage() == stage
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(STEPS, BATCH, 8, generator=generator)
    y = x.sum(2, keepdim=True).sin()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    for step in range(STEPS):
        loss = torch.nn.functional.mse_loss(engine(x[step, mine]), y[step, mine])
        engine.backward(loss)
        engine.step()
    # At stage 3 a rank has a part of each weight; at the others this does nothing.
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        numbers: np.ndarray = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    engine.destroy()
    return numbers


if __name__ == "__main__":
    save(train, __doc__)
