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
"""What a distributed optimizer of Keras 3 does with the gradients of an update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from horovod._keras.engine import part

#: One per variable: a tensor, an IndexedSlices, or None.
Gradients = Sequence[Any]
Allreduce = Callable[[Gradients, Sequence[Any]], Sequence[Any]]


def is_member(process_set: Any) -> bool:
    """Whether this rank reduces with the others of the process set.

    Raises:
        ValueError: Horovod does not know the set, or does so no longer.
    """
    if process_set.process_set_id is None:
        raise ValueError(
            f"The process set of the ranks {process_set.ranks} is none of this job's: give it to "
            f"hvd.init() or to hvd.add_process_set(), and remove it when nobody trains with it."
        )
    return process_set.process_set_id == 0 or bool(process_set.included())


class Reducer:
    """Reduces the gradients of an optimizer over the ranks, those of local variables excepted.

    Args:
        make_allreduce_grads: makes the function that reduces a list of gradients.
        process_set: the ranks. Another rank keeps its gradients.
        scale_local_gradients: whether gradients of local variables are divided by their number.
        factor: by which the gradients of an update are multiplied.
    """

    def __init__(
        self,
        make_allreduce_grads: Callable[[], Allreduce],
        process_set: Any,
        scale_local_gradients: bool,
        factor: int,
    ) -> None:
        self._make_allreduce_grads = make_allreduce_grads
        self._process_set = process_set
        self._scale_local_gradients = scale_local_gradients
        self._factor = factor
        self._local_vars: set[Any] = set()
        # The variables that belong to the gradients of the update under way.
        self.variables: Sequence[Any] | None = None
        # While the optimizer around this one has reduced already.
        self.is_reduced = False

    def register_local_var(self, var: Any) -> None:
        """Keep the gradients of this variable as they are."""
        self._local_vars.add(part.reference(var))

    def complete(
        self, grads: list[Any], variables: Sequence[Any], optimizer: Any = None
    ) -> list[Any]:
        """With zeros, on PyTorch, where another rank alone has a gradient.

        Keras forgets missing ones, and the ranks may differ in them.

        Args:
            optimizer: that reduces in the steps that update; None: each step reduces.
        """
        if self.is_reduced or len(grads) != len(variables):  # Keras refuses the second
            return grads
        if not is_member(self._process_set):
            return grads
        shared = [i for i, v in enumerate(variables) if part.reference(v) not in self._local_vars]
        there = part.complete(
            optimizer,
            [grads[i] for i in shared],
            [variables[i] for i in shared],
            self._process_set,
        )
        for i, grad in zip(shared, there, strict=True):
            grads[i] = grad
        return grads

    def reduce(self, grads: Gradients, variables: Sequence[Any] | None) -> list[Any]:
        """One gradient per variable, None where it was None."""
        variables = list(variables or ())
        is_global = [part.reference(v) not in self._local_vars for v in variables]
        common = [g for g, use in zip(grads, is_global, strict=False) if use]
        if is_member(self._process_set):
            those = [v for v, use in zip(variables, is_global, strict=False) if use]
            common = list(self._make_allreduce_grads()(common, those))
        reduced = iter(common)
        return [
            next(reduced) if use else self._local(g)
            for g, use in zip(grads, is_global, strict=False)
        ]

    def reduce_for_check(self, grads: Gradients, variables: Sequence[Any]) -> list[Any]:
        """Reduce, and agree on whether all gradients are finite, those of local variables too.

        Where a rank's local gradients are not, a common one becomes NaN on every rank.
        """
        from keras import ops

        is_local = [part.reference(v) in self._local_vars for v in variables]
        grads = self.reduce(self.complete(list(grads), variables), variables)
        local = [
            part.values_of(g)
            for g, use in zip(grads, is_local, strict=False)
            if use and g is not None
        ]
        common = [i for i, g in enumerate(grads) if g is not None and not is_local[i]]
        if not local or not common or not is_member(self._process_set):
            return grads
        is_finite = ops.all(ops.stack([ops.all(ops.isfinite(g)) for g in local]))
        failed = part.sum_of(ops.where(is_finite, 0.0, 1.0), self._process_set)
        first = min(common, key=lambda i: part.is_sparse(grads[i]))
        grads[first] = part.scaled(grads[first], ops.where(failed > 0, float("nan"), 1.0))
        return grads

    def finish(self, optimizer: Any, grads: Gradients) -> Gradients:
        """Reduce the gradients of the update under way, if that is still to be done."""
        if not self.is_reduced:
            variables = self.variables
            grads = part.when_updating(optimizer, lambda g: self.reduce(g, variables), grads)
        if self._factor != 1:
            grads = [part.scaled(g, self._factor) for g in grads]
        return grads

    def _local(self, grad: Any) -> Any:
        if grad is None or not self._scale_local_gradients:
            return grad
        return part.scaled(grad, 1.0 / self._process_set.size())
