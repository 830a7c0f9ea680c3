"""The same for tf-keras, Keras 2, which is `tf.keras` with TF_USE_LEGACY_KERAS=1.

Its optimizers have a place where the replicas of a tf.distribute strategy sum up their gradients:
before these are clipped, and before loss scaling looks for infinities. Without such a strategy ours
average there over the ranks. This module is loaded as soon as tf-keras is; Keras 3 is not needed
for that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tf_keras
from tf_keras.src.engine import training_v1
from tf_keras.src.engine.training import Model
from tf_keras.src.mixed_precision.loss_scale_optimizer import BaseLossScaleOptimizer
from tf_keras.src.optimizers.optimizer_v1 import TFOptimizer

from ddl_tensorflow._import_hook import when_imported
from ddl_tensorflow._wrap import around
from ddl_tensorflow.averaging import KINDS, Kind, averaged, is_distributed


def register() -> None:
    """Let ddl know the optimizers of tf-keras, once."""
    if KIND not in KINDS:
        KINDS.insert(0, KIND)


def average_always() -> None:
    """Let every optimizer of tf-keras average, from now on."""
    register()
    hook()
    KIND.always = True


@functools.cache
def hook() -> None:
    """Change the optimizers and models of tf-keras, once."""
    around(tf_keras.optimizers.Optimizer, "aggregate_gradients", _aggregate)
    around(tf_keras.optimizers.legacy.Optimizer, "_aggregate_gradients", _aggregate)
    for name in ("fit", "evaluate"):
        around(Model, name, functools.partial(_with_callbacks, name))
    # In TensorFlow 1's graphs its models train in sessions, which begin with rank 0's variables.
    around(training_v1.Model, "evaluate", functools.partial(_with_callbacks, "evaluate"))
    when_imported("tensorflow", "ddl_tensorflow.tf1", "hook")
    _compile_without_xla()


def _build(optimizer: Any, variables: Any) -> None:
    """Make the optimizer's variables, unless there are some."""
    if isinstance(optimizer, TFOptimizer):  # makes them in its first step, each rank alike
        return
    make = getattr(optimizer, "build", None) or optimizer._create_all_weights
    make(variables)


def _state(optimizer: Any) -> Any:
    if isinstance(optimizer, TFOptimizer):
        return [optimizer.iterations, *optimizer.optimizer.variables()]
    return optimizer.variables() if callable(optimizer.variables) else optimizer.variables


def _aggregate(original: Callable[..., Any], self: Any, grads_and_vars: Any) -> Any:
    import tensorflow as tf

    if tf.distribute.has_strategy() or not is_distributed(self):
        return original(self, grads_and_vars)
    grads, variables = zip(*grads_and_vars, strict=True)
    return list(zip(averaged(self, grads, variables), variables, strict=True))


def _with_callbacks(
    name: str, original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any
) -> Any:
    """`fit` and `evaluate` as those of Keras 3."""
    import tensorflow as tf

    if tf.distribute.has_strategy() or self.distribute_strategy.num_replicas_in_sync > 1:
        return original(self, *args, **kwargs)
    from ddl_tensorflow import callbacks

    return getattr(callbacks, name)(original, self, *args, **kwargs)


def _compile_without_xla() -> None:
    before = Model.jit_compile

    def jit_compile(model: Any) -> Any:
        asked = before.fget(model)
        return asked and not is_distributed(getattr(model, "optimizer", None))

    Model.jit_compile = property(jit_compile, before.fset)


KIND = Kind(
    (
        tf_keras.optimizers.Optimizer,
        tf_keras.optimizers.legacy.Optimizer,
        BaseLossScaleOptimizer,
        TFOptimizer,
    ),
    check=lambda: None,
    hook=hook,
    build=_build,
    state=_state,
)
