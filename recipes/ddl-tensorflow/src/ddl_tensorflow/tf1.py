"""The same for TensorFlow 1's optimizers, those of tf.compat.v1.train.

Their gradients are averaged by `compute_gradients`, before the program clips them, and others, such
as those of tf.gradients, by `apply_gradients`. In a session the first step begins with rank 0's
variables (sessions.py), and so it does eagerly. This module is loaded as soon as TensorFlow is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from ddl_tensorflow import sessions
from ddl_tensorflow._wrap import around
from ddl_tensorflow.averaging import KINDS, Kind, averaged, is_distributed
from ddl_tensorflow.moving import broadcast_n

Optimizer = tf.compat.v1.train.Optimizer


def register() -> None:
    """Let ddl know TensorFlow 1's optimizers, once."""
    if KIND not in KINDS:
        KINDS.append(KIND)


def average_always() -> None:
    """Let every one of them average, from now on."""
    register()
    hook()
    KIND.always = True


@functools.cache
def hook() -> None:
    """Change TensorFlow 1's optimizers and sessions, once."""
    around(Optimizer, "compute_gradients", _compute)
    around(Optimizer, "apply_gradients", _apply)
    sessions.hook()


def _compute(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    pairs = original(self, *args, **kwargs)
    return _averaged(self, pairs) if _averages(self) else pairs


def _apply(
    original: Callable[..., Any], self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any
) -> Any:
    if not _averages(self):
        return original(self, grads_and_vars, *args, **kwargs)
    pairs = _averaged(self, grads_and_vars)
    _begin(self, [variable for _, variable in pairs])
    return original(self, pairs, *args, **kwargs)


def _begin(optimizer: Any, variables: list[Any]) -> None:
    """Set the variables to rank 0's before an optimizer's first step, where there is no session.

    The first step of a tf.function does so while it is traced, as its variables are there then.
    """
    with tf.init_scope():
        if tf.executing_eagerly() and not getattr(optimizer, "_ddl_has_begun", False):
            optimizer._ddl_has_begun = True
            given = broadcast_n(variables, name="begin")
            for variable, value in zip(variables, given, strict=True):
                variable.assign(value)


def _averages(optimizer: Any) -> bool:
    """A tf.distribute strategy is left alone: the sums are its own."""
    return not tf.distribute.has_strategy() and is_distributed(optimizer)


def _averaged(optimizer: Any, pairs: Iterable[Any]) -> list[Any]:
    """The pairs with averages, also for gradients that only this rank has."""
    results = [tuple(pair) for pair in pairs]
    there = [i for i, (grad, _) in enumerate(results) if grad is not None]
    alike = sessions.are_alike([results[i][0] for i in there])
    own = [i for i, is_alike in zip(there, alike, strict=True) if not is_alike]
    if own:
        grads, variables = zip(*(results[i] for i in own), strict=True)
        for i, average in zip(own, averaged(optimizer, grads, variables), strict=True):
            results[i] = (average, results[i][1])
    return results


KIND = Kind(
    (Optimizer,),
    check=lambda: None,
    hook=hook,
    build=lambda optimizer, variables: None,
    state=lambda optimizer: optimizer.variables(),
)
