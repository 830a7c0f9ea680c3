"""Keras 3 optimizers that average their gradients over the ranks.

Their classes stay as they are, so that models are saved and loaded as without ddl: what is changed
is Keras's own optimizer and trainer, in a few places, and for those optimizers only that shall
average. That is all of them under `ddlrun`, else those given to `DistributedOptimizer`.

This module is loaded as soon as Keras is, perhaps by TensorFlow, which is not complete then: it is
asked for later.

The optimizers of tf-keras, Keras 2, come in by keras2.py.

Gradients are averaged before they are clipped; with gradient accumulation once for each update;
under LossScaleOptimizer before it looks for infinities, so that all ranks skip the same steps.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import keras
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.trainer import Trainer

OptimizerT = TypeVar("OptimizerT")


class _State(threading.local):
    """While a graph is traced: whether the gradients at hand have been averaged already."""

    is_averaged = False


_state = _State()
_always = False
_numbers = itertools.count(1)


def average_always() -> None:
    """Let every optimizer average, from now on; nothing if Keras does not run on TensorFlow."""
    global _always
    if keras.config.backend() == "tensorflow":
        hook()
        _always = True


def DistributedOptimizer(optimizer: OptimizerT) -> OptimizerT:
    """Let this optimizer average its gradients over the ranks; returns it.

    Under `ddlrun` every optimizer does so by itself. Models that use it are not compiled by XLA.

    Args:
        optimizer: of Keras 3 or tf-keras, also a LossScaleOptimizer.

    Raises:
        TypeError: no such optimizer.
        RuntimeError: Keras does not run on TensorFlow.
    """
    keras2 = _keras2(optimizer)
    if keras2 is not None:
        keras2.hook()
        inner: Any = _inner(optimizer)
        optimizer._ddl_averages = inner._ddl_averages = True  # type: ignore[attr-defined]
        return optimizer
    if not isinstance(optimizer, BaseOptimizer):
        raise TypeError(
            f"DistributedOptimizer: {type(optimizer).__name__} is no optimizer of Keras; "
            "use keras.optimizers, or average the gradients with ddl.grads_reduce"
        )
    if keras.config.backend() != "tensorflow":
        raise RuntimeError(
            f"DistributedOptimizer: Keras runs on {keras.config.backend()}; "
            "set KERAS_BACKEND=tensorflow"
        )
    hook()
    optimizer._ddl_averages = True
    return optimizer


wrap = DistributedOptimizer


def is_distributed(optimizer: Any) -> bool:
    """Whether this optimizer, or the one inside, averages over more than one rank."""
    from ddl_tensorflow.library import ready

    keras2 = _keras2(optimizer)
    if keras2 is None and not isinstance(optimizer, BaseOptimizer):
        return False
    always = _always if keras2 is None else keras2.always
    marked = (getattr(one, "_ddl_averages", False) for one in (optimizer, _inner(optimizer)))
    return (always or any(marked)) and ready() > 1


def build(optimizer: Any, variables: Any) -> None:
    """Make the optimizer's variables, unless there are some."""
    keras2 = _keras2(optimizer)
    if keras2 is not None:
        keras2.build(optimizer, variables)
    elif not optimizer.built:
        optimizer.build(variables)


def _inner(optimizer: Any) -> Any:
    """The one that a LossScaleOptimizer wraps, or the optimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _keras2(optimizer: Any) -> Any:
    """The module for optimizers of tf-keras if this is one."""
    if "tf_keras" not in sys.modules:
        return None
    from ddl_tensorflow import keras2

    return keras2 if isinstance(optimizer, keras2.KINDS) else None


@functools.cache
def hook() -> None:
    """Change Keras's optimizer and trainer, once."""
    from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

    _around(BaseOptimizer, "apply", _apply)
    _around(BaseOptimizer, "_clip_gradients", _clip_gradients)
    _around(keras.optimizers.LossScaleOptimizer, "apply", _apply_scaled)
    _around(keras.optimizers.MultiOptimizer, "apply", _apply_several)
    _around(TensorFlowTrainer, "fit", _fit)
    _around(TensorFlowTrainer, "evaluate", _evaluate)
    _compile_without_xla()


def _compile_without_xla() -> None:
    """XLA knows nothing of our operations: models with such an optimizer do without it."""
    before = Trainer.jit_compile

    def jit_compile(model: Any) -> bool:
        return bool(before.fget(model)) and not is_distributed(getattr(model, "optimizer", None))

    Trainer.jit_compile = property(jit_compile, before.fset)


def _around(owner: type, name: str, replacement: Callable[..., Any]) -> None:
    """`replacement` gets what it replaces as its first argument."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(original, self, *args, **kwargs)

    setattr(owner, name, call)


def averaged(optimizer: Any, grads: Sequence[Any], variables: Sequence[Any] | None) -> list[Any]:
    """The averages of its gradients; messages call them by the variables."""
    from ddl_tensorflow.library import label_of
    from ddl_tensorflow.reducing import reduce_labelled

    known = variables if variables is not None else optimizer._trainable_variables
    labels = [f"gradient of {label_of(variable, i)}" for i, variable in enumerate(known)]
    return reduce_labelled(grads, labels, name=f"{_name_of(optimizer)}/gradients")


def _name_of(optimizer: Any) -> str:
    """The same on all ranks, by the order of first use.

    Keras's own names are numbered by what this process has made, perhaps for rank 0 alone.
    """
    if not hasattr(optimizer, "_ddl_number"):
        optimizer._ddl_number = next(_numbers)
    return f"{type(optimizer).__name__.lower()}-{optimizer._ddl_number}"


def _apply(
    original: Callable[..., Any], self: Any, grads: Any, trainable_variables: Any = None
) -> Any:
    grads = list(grads)
    accumulates = bool(self.gradient_accumulation_steps)
    if grads and not accumulates and not _state.is_averaged and is_distributed(self):
        variables = None if trainable_variables is None else list(trainable_variables)
        return original(self, averaged(self, grads, variables), variables)
    return original(self, grads, trainable_variables)


def _clip_gradients(original: Callable[..., Any], self: Any, grads: Any) -> Any:
    """Where accumulated gradients come by, once for each update."""
    if self.gradient_accumulation_steps and not _state.is_averaged and is_distributed(self):
        from ddl_tensorflow.reducing import reduce_labelled

        labels = [f"accumulated gradient {i}" for i in range(len(grads))]
        grads = reduce_labelled(grads, labels, name=f"{_name_of(self)}/accumulated")
    return original(self, grads)


def _apply_scaled(
    original: Callable[..., Any], self: Any, grads: Any, trainable_variables: Any = None
) -> Any:
    if not is_distributed(self):
        return original(self, grads, trainable_variables)
    variables = None if trainable_variables is None else list(trainable_variables)
    if not self.built:  # the labels ask for its variables
        self.build(variables)
        self.built = True
    reduced = averaged(self, list(grads), variables)
    before, _state.is_averaged = _state.is_averaged, True
    try:
        return original(self, reduced, variables)
    finally:
        _state.is_averaged = before


def _apply_several(
    original: Callable[..., Any], self: Any, grads: Any, trainable_variables: Any = None
) -> Any:
    """A MultiOptimizer that has been wrapped: those inside average, each its own gradients."""
    variables = None if trainable_variables is None else list(trainable_variables)
    if getattr(self, "_ddl_averages", False):
        if not self.built and variables:  # until then it may not know those inside
            self.build(variables)
            self.built = True
        for one in self.optimizers:
            one._ddl_averages = True
    return original(self, grads, variables)


def _fit(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Begin with rank 0's variables, also when the user has not asked for it."""
    from ddl_tensorflow.callbacks import DDLGlobalVariablesCallback

    if not is_distributed(getattr(self, "optimizer", None)):
        return original(self, *args, **kwargs)
    call = inspect.signature(original).bind(self, *args, **kwargs)
    given: Any = call.arguments.get("callbacks")
    ours = DDLGlobalVariablesCallback()
    if hasattr(given, "callbacks"):  # Keras's own list of them
        if not any(isinstance(one, DDLGlobalVariablesCallback) for one in given.callbacks):
            ours.set_model(self)
            given.callbacks.append(ours)
    else:
        listed = list(given) if isinstance(given, (list, tuple)) else [given] if given else []
        if not any(isinstance(one, DDLGlobalVariablesCallback) for one in listed):
            call.arguments["callbacks"] = [*listed, ours]
    return original(*call.args, **call.kwargs)


def _evaluate(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Average the result where there is a DDLCallback; inside `fit` the callback does so itself."""
    from ddl_tensorflow.callbacks import DDLCallback, averaged

    result = original(self, *args, **kwargs)
    call = inspect.signature(original).bind(self, *args, **kwargs)
    given = call.arguments.get("callbacks")
    listed = getattr(given, "callbacks", given if isinstance(given, (list, tuple)) else [given])
    is_in_fit = "_use_cached_eval_dataset" in kwargs
    asked = any(isinstance(one, DDLCallback) for one in listed) and not is_in_fit
    return averaged(result) if asked else result
