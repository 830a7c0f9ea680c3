"""An evaluation that spreads its work and collects its results as Python objects, on NCCL."""

import torch
import torch.distributed as dist
from numbers_of import told

dist.init_process_group("nccl" if dist.is_nccl_available() else "gloo")
rank, size = dist.get_rank(), dist.get_world_size()
parts = [[{"question": n, "seed": n * n} for n in range(part, 7, size)] for part in range(size)]
mine: list[list[dict[str, int]] | None] = [None]
dist.scatter_object_list(mine, parts if rank == 0 else None, src=0)
answers = {
    row["question"]: torch.rand(2, generator=torch.Generator().manual_seed(row["seed"])).tolist()
    for row in mine[0] or []
}
collected: list[dict[int, list[float]] | None] = [None] * size
dist.gather_object(answers, collected if rank == 0 else None, dst=0)
found = {number: value for part in collected if part for number, value in part.items()}
score = [sum(map(sum, found.values()))]
dist.broadcast_object_list(score, src=0)
told([torch.tensor([found[n] for n in sorted(found)]), torch.tensor(score)])
dist.destroy_process_group()
