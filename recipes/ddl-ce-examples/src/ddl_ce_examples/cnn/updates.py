"""The ways in which variables are updated on several ranks, each behind one interface."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ddl_ce_examples.cnn.errors import BenchmarkError


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Update:
    """One rank's part in the training, after the library has started.

    Attributes:
        keras: the module: Keras 3, or tf-keras where Keras 3 cannot.
        scope: the one in which the variables are made.
        wrap: changes the optimizer.
        distribute: changes this rank's `tf.data.Dataset` before `fit` gets it.
        callbacks: for `fit`.
        losses: the number of ranks whose losses add up to the loss of a batch.
    """

    rank: int
    size: int
    keras: Any
    scope: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    wrap: Callable[[Any], Any] = _same
    distribute: Callable[[Any], Any] = _same
    callbacks: list[Any] = field(default_factory=list)
    losses: int = 1


def _ddl() -> Update:
    import ddl  # before Keras, whose optimizers average from then on
    import ddl_tensorflow  # noqa: F401 (which does that; here, its absence has a message)
    import keras

    callbacks = [ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()]
    return Update(ddl.rank(), ddl.size(), keras, callbacks=callbacks)


def _horovod() -> Update:
    import horovod.keras as hvd
    import keras

    hvd.init()
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    return Update(hvd.rank(), hvd.size(), keras, wrap=hvd.DistributedOptimizer, callbacks=callbacks)


def _distributed() -> Update:
    """By tf-keras: `fit` of Keras 3 does not work on several workers of this strategy."""
    import tensorflow as tf
    import tf_keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return Update(
        strategy.cluster_resolver.task_id or 0,
        strategy.num_replicas_in_sync,
        tf_keras,
        scope=strategy.scope,
        distribute=lambda data: strategy.distribute_datasets_from_function(lambda _: data),
        losses=strategy.num_replicas_in_sync,
    )


def _none() -> Update:
    import keras

    return Update(*launched(), keras)


UPDATES: dict[str, Callable[[], Update]] = {
    "ddl": _ddl,
    "horovod": _horovod,
    "distributed": _distributed,
    "none": _none,
}


def launched() -> tuple[int, int]:
    """This rank, and the number of ranks, as ddlrun has set them; else the only one."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def share_cores() -> None:
    """Gives TensorFlow as many threads as this rank has cores, whatever updates the variables.

    TensorFlow reads this when it is imported; `ddlrun` has counted the cores.
    """
    share = os.environ.get("OMP_NUM_THREADS", "")
    if "LOCAL_RANK" in os.environ and share.isdigit():
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", share)
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(max(2, int(share))))


def start(name: str) -> Update:
    """Starts the library of that way, which is one of UPDATES, on all ranks.

    Raises:
        BenchmarkError: it is not installed, or it does not see all ranks.
    """
    share_cores()
    try:
        update = UPDATES[name]()
    except ModuleNotFoundError as error:
        raise BenchmarkError(
            f"--variable_update={name}: there is no module {error.name}; install the "
            "package that it is of"
        ) from error
    _, size = launched()
    if "WORLD_SIZE" in os.environ and update.size != size:
        raise BenchmarkError(
            f"--variable_update={name}: {name} sees {update.size} ranks, but {size} were started; "
            f"start me with {'ddlrun -tf_config' if name == 'distributed' else 'ddlrun'}"
        )
    return update
