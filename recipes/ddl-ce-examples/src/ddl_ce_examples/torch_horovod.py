"""PyTorch on Horovod.

    ddlrun -H localhost:4 python -m ddl_ce_examples.torch_horovod

Four steps make a program for one process one for many: they are numbered below.
"""

import horovod.torch as hvd
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ddl_ce_examples import digits

BATCH = 16  # on each rank
EPOCHS = 15


def network() -> nn.Module:
    """Two convolutions and two dense layers."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(32 * 4 * 4, 128), nn.ReLU()),
        nn.Linear(128, 10),
    )


def main() -> nn.Module:
    """Trains on all ranks; rank 0 prints. Returns the model."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is not faster with more

    # 1. Start Horovod.
    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    # 2. Split the data by rank. The sampler gives all ranks as many samples.
    (x, y), (x_test, y_test) = digits.load()
    train = TensorDataset(torch.from_numpy(x).movedim(3, 1), torch.from_numpy(y))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(
        train, num_replicas=size, rank=rank
    )
    loader = DataLoader(train, BATCH, sampler=sampler)

    # 3. Scale the learning rate, and wrap the optimizer, which averages the gradients then.
    model = network()
    adam = torch.optim.Adam(model.parameters(), lr=1e-3 * size)
    optimizer = hvd.DistributedOptimizer(adam, named_parameters=model.named_parameters())

    # 4. Begin with the weights, and the optimizer's state, of rank 0.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(adam, root_rank=0)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # shuffles anew
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch + 1}/{EPOCHS}, loss {loss.item():.4f}", flush=True)

    if rank == 0:
        with torch.no_grad():
            found = model(torch.from_numpy(x_test).movedim(3, 1)).argmax(1)
        accuracy = (found == torch.from_numpy(y_test)).float().mean()
        print(f"test accuracy: {accuracy:.4f}", flush=True)
    hvd.shutdown()
    return model


if __name__ == "__main__":
    main()
