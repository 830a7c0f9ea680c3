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
"""The distributed optimizer for Keras 3, whose optimizers share nothing with those of Keras 2.

Gradients are reduced where a Keras 3 optimizer has its gradients for an update: after it has
accumulated them over several steps, if it does, and before it clips them. Under loss scaling they
are reduced before the check that they are finite: each rank by itself would come to its own
conclusion, and the ranks that skip the step would leave the others waiting.

A distributed optimizer is made from the configuration of the one that it wraps. Three things are
not in it and are copied: variables without weight decay, a learning rate that cannot be written
down, and the state. A MultiOptimizer leaves its work to the optimizers within it: it is refused.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from horovod._keras.engine import part
from horovod._keras.reducer import Allreduce, Gradients, Reducer
from packaging import version

#: Attributes of a class that are not members to copy.
_OF_EVERY_CLASS = ("__dict__", "__weakref__", "__annotations__")


def is_keras3(keras: Any) -> bool:
    """Whether the module `keras` is of Keras 3 or later. tf.keras of Keras 2 says no version."""
    return version.parse(getattr(keras, "__version__", "2")).major >= 3


class _DistributedOptimizer:
    """The members that are added to the class of the wrapped optimizer."""

    _hvd: Reducer

    def register_local_var(self, var: Any) -> None:
        """Register a variable as local to this rank: its gradients are not reduced."""
        self._hvd.register_local_var(var)

    def apply(self: Any, grads: Gradients, trainable_variables: Gradients | None = None) -> None:
        """Apply the gradients; refuse an optimizer that never reduces them."""
        variables = (
            self._trainable_variables if trainable_variables is None else list(trainable_variables)
        )
        grads = self._hvd.complete(list(grads), variables, self)
        self._hvd.variables = None
        super(self.__class__, self).apply(  # type: ignore[misc]
            grads, None if trainable_variables is None else variables
        )
        # Under accumulation most calls apply nothing.
        if (
            self._hvd.variables is None
            and not self.gradient_accumulation_steps
            and any(g is not None for g in grads)
        ):
            raise RuntimeError(
                f"{self.__class__.__name__}.apply() has updated the variables by "
                f"gradients that Horovod could not reduce: it must call "
                f"keras.optimizers.Optimizer.apply()."
            )

    def _backend_apply_gradients(
        self: Any, grads: Gradients, trainable_variables: Sequence[Any]
    ) -> None:
        self._hvd.variables = trainable_variables
        super(self.__class__, self)._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]

    def _backend_reset_gradient_accumulators(self: Any) -> None:
        """Make them zeros. On PyTorch, Keras multiplies: what was infinite would become NaN."""
        import keras

        keras.optimizers.Optimizer._backend_reset_gradient_accumulators(self)

    def _clip_gradients(self: Any, grads: Gradients) -> Any:
        return super(self.__class__, self)._clip_gradients(self._hvd.finish(self, grads))  # type: ignore[misc]


def check_optimizer(keras: Any, optimizer: Any) -> None:
    """Refuse what this module's Keras does not train with.

    Wrapped, an optimizer of another Keras goes on by itself and reduces nothing.

    Args:
        keras: the module: Keras 3, or tf-keras, which is Keras 2.
        optimizer: that is to be wrapped.

    Raises:
        ValueError: it is of the other Keras, or no optimizer.
    """
    bases = [base.__module__.partition(".")[0] for base in type(optimizer).__mro__]
    if is_keras3(keras):
        if "tf_keras" in bases:
            raise ValueError(
                "The optimizer is tf-keras', and this module of Horovod works with Keras 3: take "
                "horovod.tensorflow.keras, and set TF_USE_LEGACY_KERAS=1 before Python starts."
            )
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise ValueError(
                f"{optimizer!r} is no optimizer of Keras: give one, as keras.optimizers.Adam()."
            )
    elif "keras" in bases and is_keras3(sys.modules["keras"]):
        raise ValueError(
            "The optimizer is Keras 3's, and this module of Horovod works with tf-keras, as "
            "TF_USE_LEGACY_KERAS=1 says: unset that, or take horovod.keras."
        )


def create_distributed_optimizer(
    keras: Any,
    optimizer: Any,
    make_allreduce_grads: Callable[[], Allreduce],
    backward_passes_per_step: int,
    average_aggregated_gradients: bool,
    process_set: Any,
    scale_local_gradients: bool,
) -> Any:
    """An optimizer of the same class and state whose gradients are reduced over the ranks.

    Args:
        keras: the module.
        optimizer: the optimizer to wrap.
        make_allreduce_grads: makes the function that reduces a list of gradients.
        backward_passes_per_step: steps whose gradients are accumulated before they are reduced.
        average_aggregated_gradients: whether accumulated gradients are averaged or summed.
        process_set: the ranks.
        scale_local_gradients: whether gradients of local variables are divided by their number.

    Raises:
        ValueError: an optimizer that cannot be wrapped.
    """
    _reduce_before_loss_scaling(keras.optimizers.LossScaleOptimizer)

    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        inner = create_distributed_optimizer(
            keras,
            optimizer.inner_optimizer,
            make_allreduce_grads,
            backward_passes_per_step,
            average_aggregated_gradients,
            process_set,
            scale_local_gradients,
        )
        distributed = keras.optimizers.LossScaleOptimizer(
            inner,
            initial_scale=optimizer.initial_scale,
            dynamic_growth_steps=optimizer.dynamic_growth_steps,
            name=optimizer.name,
        )
        return _with_state_of(optimizer, distributed)

    config = _config_of(keras, _wrappable(keras, optimizer))
    factor = 1
    if backward_passes_per_step > 1:
        _accumulate(config, backward_passes_per_step)
        if not average_aggregated_gradients:
            factor = backward_passes_per_step  # Keras averages

    def make_reducer() -> Reducer:
        return Reducer(make_allreduce_grads, process_set, scale_local_gradients, factor)

    distributed = _distributed_class(optimizer.__class__, make_reducer).from_config(config)
    # What exclude_from_weight_decay() has set is not in the config.
    for name in ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern"):
        if hasattr(optimizer, name):
            setattr(distributed, name, getattr(optimizer, name))
    return _with_state_of(optimizer, distributed)


def _wrappable(keras: Any, optimizer: Any) -> Any:
    if hasattr(optimizer, "_hvd"):
        raise ValueError("The optimizer is a DistributedOptimizer already.")
    if isinstance(optimizer, getattr(keras.optimizers, "MultiOptimizer", ())):
        raise ValueError(
            "A MultiOptimizer applies no gradients itself: wrap the optimizers "
            "within it, one DistributedOptimizer each."
        )
    return optimizer


def _accumulate(config: dict[str, Any], steps: int) -> None:
    if config.get("gradient_accumulation_steps"):
        raise ValueError(
            f"The optimizer accumulates gradients itself (gradient_accumulation_steps="
            f"{config['gradient_accumulation_steps']}): leave out backward_passes_per_step, "
            f"or they would be accumulated twice."
        )
    config["gradient_accumulation_steps"] = steps


def _distributed_class(base: type, make_reducer: Callable[[], Reducer]) -> Any:
    """The class with its name and module, so that a saved model is loaded without Horovod too.

    What its from_config() makes is distributed as well; only that knows no local variables.
    """
    own = {k: v for k, v in vars(_DistributedOptimizer).items() if k not in _OF_EVERY_CLASS}

    def from_config(cls: Any, *args: Any, **kwargs: Any) -> Any:
        optimizer = super(made, cls).from_config(*args, **kwargs)
        optimizer._hvd = make_reducer()
        return optimizer

    own |= {"from_config": classmethod(from_config)}
    own |= {"__module__": base.__module__, "__doc__": base.__doc__}
    made: Any = type(base.__name__, (base,), own)
    return made


def _config_of(keras: Any, optimizer: Any) -> dict[str, Any]:
    """The configuration; a learning rate that is a schedule or a function stays the object.

    One of the program's own need not be serializable.
    """
    rate = optimizer._learning_rate
    if isinstance(rate, keras.Variable) or not callable(rate):
        return dict(optimizer.get_config())
    optimizer._learning_rate = None
    try:
        return {**optimizer.get_config(), "learning_rate": rate}
    finally:
        optimizer._learning_rate = rate


def _with_state_of(optimizer: Any, distributed: Any) -> Any:
    if optimizer.built:
        distributed.build(optimizer._trainable_variables)
        # Its own ones: those of an optimizer within are that one's.
        sources, variables = optimizer._variables, distributed._variables
        if len(sources) != len(variables):
            # Only the distributed one accumulates gradients.
            accumulators = {id(v) for v in distributed._accumulated_gradients}
            variables = [v for v in variables if id(v) not in accumulators]
        for source, variable in zip(sources, variables, strict=True):
            variable.assign(source.value)
    return distributed


def _reduce_before_loss_scaling(loss_scale_optimizer: Any) -> None:
    """Let a LossScaleOptimizer reduce the gradients if it wraps a distributed optimizer.

    model.compile() puts the optimizer of a mixed_float16 model into one.
    """
    original = loss_scale_optimizer.apply
    if hasattr(original, "_hvd_original"):
        return

    @functools.wraps(original)
    def apply(self: Any, grads: Gradients, trainable_variables: Gradients | None = None) -> Any:
        reducer = getattr(self.inner_optimizer, "_hvd", None)
        if reducer is None:
            return original(self, grads, trainable_variables)
        variables = (
            self._trainable_variables if trainable_variables is None else list(trainable_variables)
        )
        grads = reducer.reduce_for_check(list(grads), variables)
        reducer.is_reduced = True
        try:
            return original(self, grads, trainable_variables)
        finally:
            reducer.is_reduced = False

    def stateless_apply(self: Any, values: Any, grads: Gradients, trainable: Any) -> Any:
        """As `apply`, for values of variables: JAX's form, which does not call the other."""
        reducer = getattr(self.inner_optimizer, "_hvd", None)
        if reducer is None:
            return stateless(self, values, grads, trainable)
        grads = reducer.reduce_for_check(list(grads), self._trainable_variables)
        reducer.is_reduced = True
        try:
            return stateless(self, values, grads, trainable)
        finally:
            reducer.is_reduced = False

    apply._hvd_original = original  # type: ignore[attr-defined]
    loss_scale_optimizer.apply = apply
    stateless = loss_scale_optimizer.stateless_apply
    if part.__name__.endswith("jax"):
        loss_scale_optimizer.stateless_apply = functools.wraps(stateless)(stateless_apply)


def load_model(
    keras: Any,
    wrap_optimizer: Callable[[Any], Any],
    filepath: str,
    custom_optimizers: Iterable[type] | None,
    custom_objects: dict[str, Any] | None,
) -> Any:
    """Load the model and replace its optimizer by a distributed one with the same state."""
    objects: dict[str, Any] = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects)
    if model.optimizer is not None:
        model.optimizer = wrap_optimizer(model.optimizer)
    return model
