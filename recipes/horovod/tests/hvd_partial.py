"""Run by ddlrun: what Horovod's Keras leaves to a rank, and gradients of several batches.

Usage: hvd_partial.py RESULTS; rank r writes the names of the cases that it passed to RESULTS/r.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
from horovod import keras as hvd
from horovod._keras.engine import hvd as engine
from horovod.tensorflow import keras as hvd_tf
from hvd_harness import RANK, RANKS, SIZE, close, refused, same
from hvd_tables import (
    BACKEND,
    BATCH,
    alike,
    as_alone,
    case,
    data,
    fit,
    main,
    model,
    numbers,
    sgd,
    weights,
)


class Adder(keras.optimizers.Optimizer):
    """Adds the gradients, which makes every number of it exact."""

    def __init__(self, learning_rate: float = 1.0, **words: Any) -> None:
        super().__init__(learning_rate=learning_rate, **words)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self.assign_add(variable, keras.ops.cast(gradient, variable.dtype))


def compiled(optimizer: Any, variables: Sequence[Any]) -> Callable[[Sequence[Any]], None]:
    """Applies gradients as a trainer does: in a graph, or in a jitted program."""
    if BACKEND == "torch":
        return lambda gradients: optimizer.apply(gradients, variables)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        run = tf.function(lambda gradients: optimizer.apply(gradients, variables))
        return lambda gradients: run(list(gradients))
    import jax

    step = jax.jit(optimizer.stateless_apply)

    def apply(gradients: Sequence[Any]) -> None:
        state = [one.value for one in optimizer.variables]
        values, state = step(state, list(gradients), [one.value for one in variables])
        for one, value in zip([*variables, *optimizer.variables], [*values, *state], strict=True):
            one.assign(value)

    return apply


def tensors(*values: Any) -> list[Any]:
    return [keras.ops.convert_to_tensor(np.asarray(value, "float32")) for value in values]


@case
def test_a_copy_by_its_settings_is_distributed() -> None:
    for copy in (
        lambda one: one.from_config(one.get_config()),
        lambda one: type(one).from_config(one.get_config()),
    ):
        plain = hvd_tf.DistributedOptimizer(sgd(momentum=0.9), backward_passes_per_step=2)
        copied = copy(plain)
        assert copied.get_config() == plain.get_config()
        variable = keras.Variable([0.0])
        copied = copy(copy(hvd.DistributedOptimizer(Adder())))
        copied.apply(tensors([RANK]), [variable])
        same(numbers([variable]), np.mean(RANKS, keepdims=True))


@case
def test_gradients_of_several_batches() -> None:
    """They are added, or averaged, before the ranks' are averaged; a step updates at the last."""
    for average in (False, True):
        net, reference = model(), model()
        optimizer = hvd_tf.DistributedOptimizer(
            keras.optimizers.SGD(0.1, momentum=0.5),
            backward_passes_per_step=2,
            average_aggregated_gradients=average,
        )
        net.compile(optimizer, "mse")
        reference.compile(keras.optimizers.SGD(0.1 if average else 0.2, momentum=0.5), "mse")
        parts = [slice(BATCH * (turn % 3), BATCH * (turn % 3) + BATCH) for turn in range(4)]
        for turn, part in enumerate(parts):
            before = weights(net)
            net.train_on_batch(*(array[part] for array in data(RANK)))
            assert (weights(net) == before).all() == (turn % 2 == 0), (average, turn)
        for pair in (parts[:2], parts[2:]):
            both = [[data(rank)[i][part] for part in pair for rank in RANKS] for i in (0, 1)]
            reference.train_on_batch(*(np.concatenate(arrays) for arrays in both))
        alike(weights(net), average)
        close(weights(net), weights(reference), 2e-5, average)
        assert int(keras.ops.convert_to_numpy(optimizer.iterations)) == 2, "counts updates"


@case
def test_gradients_of_several_batches_of_local_variables() -> None:
    """A rank's own are neither reduced nor, unless that is asked for, divided by the ranks."""
    rows = np.array([[1.0, 2.0], [-4.0, 0.0]])
    for average in (False, True):
        for scale in (True, False):
            optimizer = hvd_tf.DistributedOptimizer(
                Adder(),
                backward_passes_per_step=4,
                average_aggregated_gradients=average,
                scale_local_gradients=scale,
            )
            variables = [keras.Variable(np.zeros((2, 2), "float32")) for i in range(4)]
            optimizer.build(variables)
            for own in variables[1:3]:
                optimizer.register_local_var(own)
            apply = compiled(optimizer, variables)
            for turn in range(10):
                apply(tensors(*[rows * (i + 1) * (RANK + 1) for i in range(4)]))
                sums = (turn + 1) // 4 * (1 if average else 4)
                for i, variable in enumerate(variables):
                    mine = (RANK + 1) / (SIZE if scale else 1)
                    ranks = mine if i in (1, 2) else (SIZE + 1) / 2
                    expected = rows * (i + 1) * ranks * sums
                    found = numbers([variable]).reshape(2, 2)
                    close(found, expected, 1e-5, (average, scale, turn, i))


@case
def test_an_infinite_gradient_is_gone_after_its_update() -> None:
    optimizer = hvd_tf.DistributedOptimizer(sgd(), backward_passes_per_step=2)
    variable = keras.Variable([0.0, 0.0])
    optimizer.build([variable])
    apply = compiled(optimizer, [variable])
    for _ in range(2):
        apply(tensors([np.inf if RANK == 0 else 1.0, 1.0]))
    assert not np.isfinite(numbers([variable])[0])
    variable.assign([0.0, 0.0])
    for _ in range(2):
        apply(tensors([RANK, 1.0]))
    close(numbers([variable]), np.array([-0.1 * sum(RANKS) * 2 / SIZE, -0.2]), 1e-6)


@case
def test_rows_of_an_embedding_of_several_batches() -> None:
    def embedded() -> Any:
        keras.utils.set_random_seed(3)
        return keras.Sequential(
            [keras.Input((3,)), keras.layers.Embedding(10, 4), keras.layers.Flatten()]
        )

    words = np.array([[[r % 10, (r + i) % 10, 9] for i in range(4)] for r in RANKS])
    goal = np.zeros((4, 12), "float32")
    for as_dense in (False, True):
        net, reference = embedded(), embedded()
        optimizer = hvd_tf.DistributedOptimizer(
            keras.optimizers.RMSprop(0.01),
            sparse_as_dense=as_dense,
            backward_passes_per_step=2,
            average_aggregated_gradients=True,
        )
        net.compile(optimizer, "mse")
        whole = keras.optimizers.RMSprop(0.01, gradient_accumulation_steps=2)
        reference.compile(whole, "mse")
        for _ in range(5):
            net.train_on_batch(words[RANK], goal)
            reference.train_on_batch(words.reshape(-1, 3), np.tile(goal, (SIZE, 1)))
        alike(weights(net), as_dense)
        close(weights(net), weights(reference), 2e-5, as_dense)


def steps_of_ranks(optimize: Callable[[Any], Any]) -> tuple[Any, list[list[np.ndarray]]]:
    """A network that has made a step, and how far each rank's own step moves each variable."""
    batch = [array[:BATCH] for array in data(RANK)]
    net, alone = model(seed=RANK), model(seed=RANK)
    before = net.get_weights()
    alone.compile(sgd(), "mse")
    alone.train_on_batch(*batch)
    own = [now - then for now, then in zip(alone.get_weights(), before, strict=True)]
    net.compile(optimize(net), "mse")
    net.train_on_batch(*batch)
    net.moves = [now - then for now, then in zip(net.get_weights(), before, strict=True)]
    return net, engine.allgather_object(own)


@case
def test_a_partial_optimizer() -> None:
    """No, one and all layers are the rank's own; the ranks begin with other weights."""
    for count in range(3):
        for scale in (True, False):
            net, steps = steps_of_ranks(
                lambda net, count=count, scale=scale: hvd.PartialDistributedOptimizer(
                    sgd(), local_layers=net.layers[:count], scale_local_gradients=scale
                )
            )
            for i, move in enumerate(net.moves):
                own = steps[RANK][i] / (SIZE if scale else 1)
                mean = np.mean([step[i] for step in steps], 0)
                close(move, own if i < 2 * count else mean, 1e-6, (count, scale, i))


@case
def test_layers_of_a_partial_optimizer() -> None:
    net, steps = steps_of_ranks(
        lambda net: hvd.PartialDistributedOptimizer(sgd(), local_layers=net.layers[1])
    )
    close(net.moves[2], steps[RANK][2] / SIZE, 1e-6)
    refused(
        lambda: hvd.PartialDistributedOptimizer(sgd(), local_layers=[net.layers[0].kernel]),
        "All local layers must be of keras.layers.Layer type",
    )


@contextmanager
def added(ranks: list[int]) -> Iterator[Any]:
    one = hvd.add_process_set(ranks)
    try:
        yield one
    finally:
        hvd.remove_process_set(one)


@case
def test_ranks_outside_the_process_set_train_alone() -> None:
    """As upstream's do; with gradients of several batches and with loss scaling, too."""
    if SIZE < 2:
        return
    members = [rank for rank in RANKS if rank % 2 == 0]
    mine = members if RANK in members else [RANK]

    def partial(one: Any, **words: Any) -> Any:
        return hvd_tf.DistributedOptimizer(sgd(**words), process_set=one)

    def scaled(optimizer: Any) -> Any:
        return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0)

    with added(members) as one:
        for make in (
            lambda wrap: wrap(),
            lambda wrap: wrap(gradient_accumulation_steps=2),
            lambda wrap: scaled(wrap()),
        ):
            net, reference = model(), model()
            fit(net, make(lambda one=one, **words: partial(one, **words)))
            fit(reference, make(sgd), mine)
            close(weights(net), weights(reference), 2e-5)


@case
def test_a_process_set_that_is_none_of_the_job_s_is_refused() -> None:
    with added([0]) if SIZE > 1 else nullcontext(hvd.ProcessSet([0])) as gone:
        pass
    variable = keras.Variable([1.0])
    for one in (hvd.ProcessSet([0]), gone):
        optimizer = hvd_tf.DistributedOptimizer(sgd(), process_set=one)
        refused(lambda o=optimizer: o.apply(tensors([1.0]), [variable]), "hvd.add_process_set()")


@case
def test_local_variables_of_the_broadcast() -> None:
    """One, several, and what is none; of layers that do not train."""
    root = SIZE - 1
    for count in (1, 2):
        net = model(seed=RANK)
        for layer in net.layers:
            layer.trainable = False
        local = net.layers[0].weights[:count]
        given_ones = local if count > 1 else local[0]
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(root, local_variables=given_ones)
        fit(net, hvd.DistributedOptimizer(sgd()), callbacks=[callback])
        found = net.get_weights()
        for i, (own, of_root) in enumerate(
            zip(model(seed=RANK).get_weights(), model(seed=root).get_weights(), strict=True)
        ):
            same(found[i], own if i < count else of_root, i)
    refused(
        lambda: hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=["kernel"]),
        "All local variables must be variables of TensorFlow or Keras",
    )


@case
def test_a_model_that_one_rank_has_loaded() -> None:
    """The others begin anew, without a state of their optimizers; rank 0's is given to them."""
    keras.utils.clear_session()  # all ranks begin with one number of layers
    net = model()
    fit(net, hvd.DistributedOptimizer(sgd(momentum=0.9)), epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        net.save(path)
        keras.utils.clear_session()
        if RANK == 0:
            again = hvd.load_model(path)
            momentum = numbers(again.optimizer.variables)[-3:]
            same(momentum, numbers(net.optimizer.variables)[-3:])
        else:
            again = model(seed=RANK)
            again.compile(hvd.DistributedOptimizer(sgd(momentum=0.9)), "mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    words = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    again.fit(*data(RANK), callbacks=[callback], **words)
    alike(weights(again))
    alike(numbers(again.optimizer.variables))
    steps = int(keras.ops.convert_to_numpy(again.optimizer.iterations))
    assert steps == 6, steps
    keras.utils.clear_session()  # they have not made the same number


@case
def test_optimizers_of_one_s_own_are_loaded() -> None:
    net = model()
    fit(net, hvd.DistributedOptimizer(Adder()), epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        net.save(path)
        for words in ({"custom_optimizers": [Adder]}, {"custom_objects": {"Adder": Adder}}):
            again = hvd.load_model(path, **words)
            variable = keras.Variable([0.0])
            again.optimizer = hvd.DistributedOptimizer(Adder())
            again.optimizer.apply(tensors([RANK]), [variable])
            same(numbers([variable]), np.mean(RANKS, keepdims=True))


@case
def test_sums_of_the_ranks_with_a_local_layer() -> None:
    net, steps = steps_of_ranks(
        lambda net: hvd.PartialDistributedOptimizer(sgd(), op=hvd.Sum, local_layers=net.layers[:1])
    )
    close(net.moves[0], steps[RANK][0] / SIZE, 1e-6)
    close(net.moves[2], np.sum([step[2] for step in steps], 0), 1e-6)


@case
def test_an_own_optimizer_trains_as_one_process_does() -> None:
    class Slow(Adder):
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            self.assign_sub(variable, gradient * keras.ops.cast(learning_rate, variable.dtype))

    net = model()
    fit(net, hvd.DistributedOptimizer(Slow(0.1)))
    as_alone(net, lambda: Slow(0.1))


if __name__ == "__main__":
    main()
