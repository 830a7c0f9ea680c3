"""Keras 3 optimizers that average their gradients over the ranks.

Their classes stay as they are, so that models are saved and loaded as without ddl. Keras's own
optimizer and trainer are changed in a few methods, and only for optimizers that shall average.
These are all optimizers under `ddlrun`, else those given to `DistributedOptimizer`.

This module is loaded as soon as Keras is, perhaps by TensorFlow. That is not complete then, so it
is imported later.

The optimizers of tf-keras, Keras 2, come in by keras2.py.

Gradients are averaged before they are clipped, and with gradient accumulation once for each update.
Under LossScaleOptimizer they are averaged before it looks for infinities, so that all ranks skip
the same steps.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import keras
from keras.src.optimizers.base_optimizer import BaseOptimizer

from ddl_tensorflow import backends
from ddl_tensorflow._import_hook import when_imported
from ddl_tensorflow._wrap import around
from ddl_tensorflow.averaging import (
    KINDS,
    Kind,
    averaged,
    inner,
    is_distributed,
    kind_of,
    name_of,
)

OptimizerT = TypeVar("OptimizerT")


class _State(threading.local):
    """While a graph is traced.

    Attributes:
        is_averaged: whether the gradients at hand have been averaged already.
        variables: those of the gradients at hand.
    """

    is_averaged = False
    variables: Sequence[Any] = ()


_state = _State()


def average_always() -> None:
    """Let every optimizer average, from now on; nothing on a backend that ddl does not know."""
    if backends.name() in backends.NAMES:
        hook()
        KIND.always = True


def DistributedOptimizer(optimizer: OptimizerT) -> OptimizerT:
    """Let this optimizer average its gradients over the ranks; returns it.

    Under `ddlrun` every optimizer does so by itself. On TensorFlow, models that use it are not
    compiled by XLA.

    Args:
        optimizer: of Keras 3, tf-keras or tf.compat.v1.train, also a LossScaleOptimizer.

    Raises:
        TypeError: no such optimizer.
        RuntimeError: Keras runs on a backend that ddl does not know.
    """
    kind = kind_of(optimizer)
    if kind is None:
        raise TypeError(
            f"DistributedOptimizer: {type(optimizer).__name__} is no optimizer of Keras, nor of "
            "tf.compat.v1.train; use one, or average the gradients with ddl.grads_reduce"
        )
    kind.check()
    kind.hook()
    marked: Any = optimizer
    marked._ddl_averages = True
    if kind is not KIND:  # elsewhere than in Keras 3, each optimizer does so for itself
        inner(marked)._ddl_averages = True
    return optimizer


wrap = DistributedOptimizer


def _build(optimizer: Any, variables: Any) -> None:
    if not optimizer.built:
        optimizer.build(variables)


@functools.cache
def hook() -> None:
    """Change Keras's optimizer and trainer, once."""
    backend = backends.current()
    around(BaseOptimizer, "apply", _apply)
    around(BaseOptimizer, "_backend_apply_gradients", _backend_apply_gradients)
    around(BaseOptimizer, "_clip_gradients", _clip_gradients)
    around(keras.optimizers.LossScaleOptimizer, "apply", _apply_scaled)
    around(keras.optimizers.MultiOptimizer, "apply", _apply_several)
    around(backend.trainer(), "fit", _fit)
    around(keras.optimizers.LossScaleOptimizer, "stateless_apply", _stateless_apply_scaled)
    backend.prepare()


def _apply(
    original: Callable[..., Any], self: Any, grads: Any, trainable_variables: Any = None
) -> Any:
    grads = list(grads)
    if not grads or _state.is_averaged or not is_distributed(self):
        return original(self, grads, trainable_variables)
    variables = None if trainable_variables is None else list(trainable_variables)
    if self.gradient_accumulation_steps:
        known = self._trainable_variables if variables is None else variables
        return original(self, backends.current().complete(self, grads, known), variables)
    return original(self, averaged(self, grads, variables), variables)


def _backend_apply_gradients(
    original: Callable[..., Any], self: Any, grads: Any, trainable_variables: Any
) -> Any:
    """Remember whose gradients these are: Keras has left out those that are None."""
    before, _state.variables = _state.variables, trainable_variables
    try:
        return original(self, grads, trainable_variables)
    finally:
        _state.variables = before


def _clip_gradients(original: Callable[..., Any], self: Any, grads: Any) -> Any:
    """Average accumulated gradients, which pass here once for each update."""
    if self.gradient_accumulation_steps and not _state.is_averaged and is_distributed(self):
        name, variables = f"{name_of(self)}/accumulated", _state.variables
        grads = backends.current().average_accumulated(self, grads, variables, name)
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
    with _averaged_already():
        return original(self, reduced, variables)


def _stateless_apply_scaled(
    original: Callable[..., Any],
    self: Any,
    optimizer_variables: Any,
    grads: Any,
    trainable_variables: Any,
) -> Any:
    """As `apply` of a LossScaleOptimizer, for values of variables instead of variables."""
    if not is_distributed(self):
        return original(self, optimizer_variables, grads, trainable_variables)
    reduced = averaged(self, list(grads), None)
    with _averaged_already():
        return original(self, optimizer_variables, reduced, trainable_variables)


@contextmanager
def _averaged_already() -> Iterator[None]:
    before, _state.is_averaged = _state.is_averaged, True
    try:
        yield
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
    from ddl_tensorflow.callbacks import fit

    return fit(original, self, *args, **kwargs)


KIND = Kind(
    (BaseOptimizer,),
    check=backends.current,
    hook=hook,
    build=_build,
    state=lambda optimizer: optimizer.variables,
    backend=backends.current,
)
KINDS.append(KIND)
when_imported("tensorflow", "ddl_tensorflow.tf1", "register")
when_imported("tf_keras", "ddl_tensorflow.keras2", "register")
