"""The data of all examples: 1797 handwritten digits, which come with scikit-learn."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

Data: TypeAlias = tuple[np.ndarray, np.ndarray]


def load() -> tuple[Data, Data]:
    """The train (80%) and test (20%) split, the same on every rank.

    Returns:
        Twice images and labels: float32 of shape (n, 8, 8, 1) in 0..1, and int64 of shape (n,).
    """
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    x, x_test, y, y_test = train_test_split(
        images, labels.astype(np.int64), test_size=0.2, random_state=0, stratify=labels
    )
    return (x, y), (x_test, y_test)
