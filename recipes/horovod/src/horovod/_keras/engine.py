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
"""The Horovod that serves Keras here: TensorFlow's, or PyTorch's on PyTorch and on JAX.

On JAX, gradients are reduced inside the compiled step by `ddl.jax`, and single values by PyTorch's.
The frontends import their names from here, which are those of that Horovod. `part` has what differs
between the backends, with the same functions in each module:

- `reference` makes a key for a variable.
- `make_allreduce_grads` makes the function that reduces a list of gradients.
- `when_updating` calls a function of the gradients in steps that update.
- `complete` is a list of gradients, with those that other ranks alone have.
- `sum_of` sums a number over the ranks.
- `values_of`, `scaled` and `is_sparse` are of one gradient.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def _backend() -> str:
    if os.environ.get("TF_USE_LEGACY_KERAS", "0").lower() in ("1", "true"):
        return "tensorflow"  # Keras 2 knows no other
    import keras

    name = str(keras.config.backend())
    if name not in ("tensorflow", "torch", "jax"):
        raise ImportError(
            f"Horovod does not know Keras' backend '{name}': set KERAS_BACKEND to tensorflow, "
            f"torch or jax."
        )
    return name


BACKEND = _backend()
ON_TENSORFLOW = BACKEND == "tensorflow"
hvd: Any = import_module("horovod.tensorflow" if ON_TENSORFLOW else "horovod.torch")
part: Any = import_module(f"horovod._keras.on_{BACKEND}")


def __getattr__(name: str) -> Any:
    """`init`, `Average` and so on."""
    return getattr(hvd, name)
