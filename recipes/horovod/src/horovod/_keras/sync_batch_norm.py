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
"""Batch normalization over the batches of all ranks, on each of Keras' backends."""

from __future__ import annotations

from typing import Any

import keras
from horovod._keras.engine import hvd, part
from keras import ops


@keras.saving.register_keras_serializable(package="horovod")
class SyncBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Batch normalization whose mean and variance in training are of all ranks' batches together.

    Ranks may have batches of different sizes, and masks. Its arguments are those of
    keras.layers.BatchNormalization.
    """

    def _moments(self, inputs: Any, mask: Any) -> Any:
        mean, variance = super()._moments(inputs, mask)
        if hvd.size() == 1:
            return mean, variance
        if mask is None:
            count = ops.cast(ops.size(inputs), mean.dtype) / inputs.shape[self.axis]
        else:
            count = ops.sum(ops.cast(mask, mean.dtype))
        ours = [mean, variance + ops.square(mean), ops.ones_like(mean)]
        sums = part.sum_of(ops.stack(ours) * count, hvd.global_process_set)
        whole_mean = sums[0] / ops.maximum(sums[2], 1.0)
        return whole_mean, sums[1] / ops.maximum(sums[2], 1.0) - ops.square(whole_mean)
