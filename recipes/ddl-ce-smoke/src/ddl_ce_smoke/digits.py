"""The training task: scikit-learn's 1797 real handwritten digits, and a small CNN."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import Dataset

SEED = 20240229


@dataclass(frozen=True)
class Split(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Images of shape (n, 1, 8, 8), float32 in 0..1, and labels of shape (n,), int64."""

    images: torch.Tensor
    labels: torch.Tensor

    def to(self, device: torch.device) -> Split:
        """The same data on `device`."""
        return Split(self.images.to(device), self.labels.to(device))

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One image and its label."""
        return self.images[index], self.labels[index]

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.labels)


def load() -> tuple[Split, Split]:
    """The train (80%) and test (20%) split, stratified by digit; the same on every rank."""
    digits = load_digits()
    parts = train_test_split(
        digits.images, digits.target, test_size=0.2, random_state=SEED, stratify=digits.target
    )
    train_x, test_x, train_y, test_y = parts

    def split(images: object, labels: object) -> Split:
        tensor = torch.as_tensor(images, dtype=torch.float32).unsqueeze(1) / 16
        return Split(tensor, torch.as_tensor(labels, dtype=torch.int64))

    return split(train_x, train_y), split(test_x, test_y)


def shard(count: int, size: int, rank: int, epoch: int) -> torch.Tensor:
    """Indices of one rank's share of `count` samples in one epoch, shuffled.

    Disjoint between the ranks, equally many on each: up to `size` - 1 samples are left out.
    """
    generator = torch.Generator().manual_seed(SEED + epoch)
    return torch.randperm(count, generator=generator)[rank : count - count % size : size]


def network() -> nn.Sequential:
    """Two convolutions and two dense layers, 75 thousand parameters.

    No batch normalisation: its running statistics would differ between ranks, and the suite
    compares the ranks' weights bit by bit.
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
