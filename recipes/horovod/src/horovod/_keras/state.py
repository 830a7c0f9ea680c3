# Copyright DDL-CE contributors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
# ==============================================================================
"""The elastic state of a Keras model on PyTorch or JAX."""

from __future__ import annotations

from typing import Any

import horovod.torch as hvd
import keras
import numpy as np
from horovod._keras.values import broadcast_variables, synchronized, variables_of
from horovod.common.elastic import ObjectState
from horovod.torch.elastic import run

__all__ = ["KerasState", "run"]


class KerasState(ObjectState):  # type: ignore[misc]
    """A model, its optimizer, and properties of the program's own.

    Raises:
        ValueError: the model has not been built.
    """

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
    ) -> None:
        if not model.built:
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or model.optimizer
        if not self.optimizer.built:
            self.optimizer.build(model.trainable_variables)
        self.backend = backend
        self._saved: list[np.ndarray] = []
        self._save_model()
        super().__init__(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, **kwargs)

    def save(self) -> None:
        """Keep what there is now."""
        self._save_model()
        super().save()

    def restore(self) -> None:
        """Go back to what was kept."""
        for variable, value in zip(self._variables(), self._saved, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Take rank 0's."""
        broadcast_variables(self._variables(), 0)
        self._save_model()
        super().sync()

    def _save_model(self) -> None:
        self._saved = [np.array(keras.ops.convert_to_numpy(one)) for one in self._variables()]

    def _variables(self) -> list[Any]:
        model = synchronized(self.model)
        own = [] if self.optimizer is model.optimizer else self.optimizer.variables
        return [*variables_of(model), *own]
