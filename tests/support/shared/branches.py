"""A network of Keras with a gradient that some ranks alone have, as of a mixture of experts."""

from __future__ import annotations

from typing import Any

import keras


class Branches(keras.Model):  # type: ignore[misc]
    """One of two layers before the last; a third one is never used.

    Args:
        inputs: the number of features.
        chosen: 0 or 1, the layer.
        is_dense: use both, the other one times zero: each has a gradient then.
    """

    def __init__(self, inputs: int, chosen: int, is_dense: bool) -> None:
        super().__init__()
        self.parts = [keras.layers.Dense(7, "tanh", name=f"part{i}") for i in range(3)]
        self.last = keras.layers.Dense(3)
        for part in self.parts:
            part.build((None, inputs))
        self.last.build((None, 7))
        self.built = True
        self._chosen, self._is_dense = chosen, is_dense

    def call(self, x: Any) -> Any:
        if not self._is_dense:
            return self.last(self.parts[self._chosen](x))
        both = [part(x) * float(i == self._chosen) for i, part in enumerate(self.parts[:2])]
        return self.last(both[0] + both[1])
