"""Run by ddlrun: Horovod's Keras on any of its backends, as KERAS_BACKEND says.

Usage: hvd_backends.py RESULTS; rank r writes the names of the cases that it passed to RESULTS/r.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
from branches import Branches
from horovod import keras as hvd
from horovod._keras.engine import hvd as engine
from hvd_harness import RANK, RANKS, SIZE, close, everyone, given, refused, rows, same
from hvd_tables import (
    BACKEND,
    BATCH,
    EPOCHS,
    STEPS,
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


@case
def test_one_process_s_numbers() -> None:
    makes = (lambda: sgd(momentum=0.9), lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1))
    for make in makes:
        net = model()
        fit(net, hvd.DistributedOptimizer(make()))
        as_alone(net, make)
    net = model()
    fit(net, hvd.DistributedOptimizer(sgd()), run_eagerly=True)
    as_alone(net, sgd)


@case
def test_options() -> None:
    net = model()
    layers = [layer.trainable_variables for layer in net.layers]
    for options in ({"groups": 1}, {"groups": 3}, {"gradient_predivide_factor": 2.0}):
        net = model()
        fit(net, hvd.DistributedOptimizer(sgd(), **options))
        as_alone(net, sgd)
    net = model()
    layers = [layer.trainable_variables for layer in net.layers]
    fit(net, hvd.DistributedOptimizer(sgd(), groups=layers))
    as_alone(net, sgd)
    net = model()
    fit(net, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 / SIZE), op=hvd.Sum))
    as_alone(net, sgd)


@case
def test_compression() -> None:
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        net = model()
        fit(net, hvd.DistributedOptimizer(sgd(), compression=compression))
        as_alone(net, sgd, 2e-2)


@case
def test_clipping_comes_after_the_average() -> None:
    for words in ({"clipnorm": 0.1}, {"clipvalue": 0.05}, {"global_clipnorm": 0.1}):
        net = model()
        fit(net, hvd.DistributedOptimizer(sgd(**words)))
        as_alone(net, lambda words=words: sgd(**words))


@case
def test_accumulated_gradients() -> None:
    net = model()
    fit(net, hvd.DistributedOptimizer(sgd(gradient_accumulation_steps=2)))
    as_alone(net, lambda: sgd(gradient_accumulation_steps=2))


@case
def test_a_gradient_that_some_ranks_alone_have() -> None:
    """Those of the others are zero."""
    if BACKEND == "tensorflow":  # its graphs, and so the names of their gradients, would differ
        return
    makes = [
        lambda: hvd.DistributedOptimizer(sgd(momentum=0.9)),
        lambda: hvd.DistributedOptimizer(sgd(gradient_accumulation_steps=2)),
        lambda: keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(sgd()), 8.0),
    ]
    if BACKEND != "jax":  # there an unused variable has a gradient of zeros, and decays
        makes.append(lambda: hvd.DistributedOptimizer(sgd(weight_decay=0.5)))
    for make in makes:
        trained = []
        for is_dense in (False, True):
            keras.utils.set_random_seed(5)
            net = Branches(7, RANK % 2, is_dense)
            unused = net.parts[2].get_weights()
            fit(net, make())
            alike(weights(net))
            for now, before in zip(net.parts[2].get_weights(), unused, strict=True):
                assert (now == before).all(), "a variable without a gradient on any rank has moved"
            trained.append(weights(net))
        close(*trained, 2e-5)


@case
def test_several_steps_at_once() -> None:
    if BACKEND == "torch":  # Keras itself refuses
        return
    net = model()
    net.compile(hvd.DistributedOptimizer(sgd()), "mse", steps_per_execution=3)
    words = {"epochs": EPOCHS, "batch_size": BATCH, "shuffle": False, "verbose": 0}
    net.fit(*data(RANK), **words)
    as_alone(net, sgd)


@case
def test_mixed_precision_and_an_overflow_on_one_rank() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        net = model(dtype="mixed_float16")
        net.compile(hvd.DistributedOptimizer(sgd()), "mse")
    finally:
        keras.config.set_dtype_policy("float32")
    inputs, outputs = data(RANK)
    net.train_on_batch(inputs, outputs)
    before = weights(net)
    wild = np.float32(3e38) if RANK == SIZE - 1 else np.float32(1)
    net.train_on_batch(inputs, outputs * wild)
    same(weights(net), before, "the step was not skipped")
    net.train_on_batch(inputs, outputs)
    alike(weights(net))
    assert np.isfinite(weights(net)).all()
    assert not np.array_equal(weights(net), before)


@case
def test_local_layers() -> None:
    for scaled in (False, True):
        net = model()
        first, last = net.layers
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.LossScaleOptimizer(sgd(), initial_scale=1.0) if scaled else sgd(),
            local_layers=[first],
        )
        fit(net, optimizer)
        found = engine.allgather_object([numbers(layer.weights) for layer in (first, last)])
        for rank in RANKS:
            same(found[rank][1], found[RANK][1], "the common layer")
            assert rank == RANK or not np.array_equal(found[rank][0], found[RANK][0])


@case
def test_process_sets() -> None:
    if SIZE < 2:
        return
    sets = [hvd.add_process_set([rank for rank in RANKS if rank % 2 == i]) for i in (0, 1)]
    mine = [rank for rank in RANKS if rank % 2 == RANK % 2]
    net, reference = model(), model()
    fit(net, hvd.PartialDistributedOptimizer(sgd(), process_set=sets[RANK % 2]))
    fit(reference, sgd(), mine)
    close(weights(net), weights(reference), 2e-5)
    for one in sets:
        hvd.remove_process_set(one)


@case
def test_broadcast_at_the_beginning() -> None:
    root = SIZE - 1
    net = model(seed=RANK)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(root)
    fit(net, hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), callbacks=[callback])
    alike(weights(net))
    alike(numbers(net.optimizer.variables))


@case
def test_a_local_variable_is_not_broadcast() -> None:
    net = model(seed=RANK)
    first, last = net.layers
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=first.weights)
    fit(net, hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), callbacks=[callback])
    same(numbers(first.weights), numbers(model(seed=RANK).layers[0].weights))
    same(numbers(last.weights), numbers(model(seed=0).layers[1].weights))


@case
def test_metrics_are_averaged() -> None:
    callback = hvd.callbacks.MetricAverageCallback()
    history = fit(model(), hvd.DistributedOptimizer(sgd()), callbacks=[callback]).history
    alike(np.float64(history["loss"]))


@case
def test_the_learning_rate_warms_up() -> None:
    rates: list[float] = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

    warm = hvd.callbacks.LearningRateWarmupCallback(
        0.4, warmup_epochs=1, momentum_correction=False, steps_per_epoch=STEPS
    )
    falls = hvd.callbacks.LearningRateScheduleCallback(
        0.4, lambda epoch: 0.5**epoch, start_epoch=1, momentum_correction=False
    )
    net = model()
    fit(net, hvd.DistributedOptimizer(sgd()), callbacks=[warm, falls, Watch()], epochs=3)
    steps = [(i + 1) / STEPS for i in range(STEPS)]
    expected = [0.4 / SIZE * (step * (SIZE - 1) + 1) for step in steps]
    close(np.array(rates[:STEPS]), np.array(expected))
    close(np.array(rates[STEPS:]), np.array([0.2] * STEPS + [0.1] * STEPS))
    alike(weights(net))


@case
def test_batch_normalization_over_all_ranks() -> None:
    """Of batches of other sizes on each rank: as one process normalizes all of them."""
    rows = [2 + 2 * rank for rank in RANKS]
    parts = [given(rank, rows[rank], 5, 4, top=9).astype("float32") for rank in RANKS]
    masks = [given(rank, rows[rank], 5, salt=1) > 1 for rank in RANKS]
    for masked in (False, True):
        ours, plain = hvd.SyncBatchNormalization(), keras.layers.BatchNormalization()
        mask, all_masks = (masks[RANK], np.concatenate(masks)) if masked else (None, None)
        out = ours(parts[RANK], training=True, mask=mask)
        whole = plain(np.concatenate(parts), training=True, mask=all_masks)
        mine = keras.ops.convert_to_numpy(whole)[sum(rows[:RANK]) : sum(rows[: RANK + 1])]
        close(keras.ops.convert_to_numpy(out), mine, 1e-4, masked)
        for one, other in zip(ours.get_weights(), plain.get_weights(), strict=True):
            close(one, other, 1e-4, masked)


@case
def test_training_with_batch_normalization() -> None:
    def normalized(layer: Any) -> keras.Model:
        keras.utils.set_random_seed(5)
        layers = [layer(name="one"), keras.layers.Dense(9, "tanh"), layer(name="two")]
        return keras.Sequential([keras.Input((7,)), *layers, keras.layers.Dense(3)])

    net, reference = (
        normalized(layer) for layer in (hvd.SyncBatchNormalization, keras.layers.BatchNormalization)
    )
    fit(net, hvd.DistributedOptimizer(sgd()))
    fit(reference, sgd(), RANKS)
    alike(weights(net))
    close(weights(net), weights(reference), 1e-4)
    with tempfile.TemporaryDirectory() as folder:
        net.save(Path(folder) / "model.keras")
        loaded = keras.saving.load_model(Path(folder) / "model.keras")
    assert isinstance(loaded.layers[0], hvd.SyncBatchNormalization)


@case
def test_a_model_is_saved_and_loaded() -> None:
    net = model()
    fit(net, hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        net.save(path)
        plain = keras.saving.load_model(path)
        loaded = hvd.load_model(path)
    assert isinstance(plain.optimizer, keras.optimizers.Adam)
    assert not hasattr(plain.optimizer, "_hvd")
    close(numbers(loaded.optimizer.variables), numbers(net.optimizer.variables), 0.0)
    for one in (net, loaded):
        one.fit(*data(RANK), batch_size=BATCH, shuffle=False, verbose=0)
    alike(weights(loaded))
    close(weights(loaded), weights(net), 1e-6)


@case
def test_an_elastic_state_goes_back() -> None:
    net = model(seed=RANK)
    net.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    net.optimizer.build(net.trainable_variables)
    state = hvd.elastic.KerasState(net, epoch=RANK)
    state.sync()
    assert state.epoch == 0
    same(weights(net), weights(model(seed=0)))
    state.epoch = 3
    state.save()
    kept = weights(net)
    net.train_on_batch(*data(RANK))
    state.epoch = 4
    state.restore()
    assert state.epoch == 3
    same(weights(net), kept)
    same(numbers(net.optimizer.variables)[:1], np.zeros(1))


@case
def test_values() -> None:
    def there(result: Any) -> np.ndarray:
        return np.asarray(keras.ops.convert_to_numpy(result), np.float64)

    same(there(hvd.allreduce(given(RANK, 3), average=False)), everyone(3).sum(0))
    same(there(hvd.allreduce(float(RANK), average=False)), np.float64(sum(RANKS)))
    same(there(hvd.allgather(given(RANK, 2))), everyone(2).ravel())
    same(there(hvd.broadcast(given(RANK, 2), SIZE - 1)), given(SIZE - 1, 2))
    out = hvd.reducescatter(given(RANK, SIZE + 1), op=hvd.Sum)
    same(there(out), everyone(SIZE + 1).sum(0)[rows(RANK, SIZE + 1)])


@case
def test_wrong_arguments() -> None:
    refused(lambda: hvd.DistributedOptimizer("adam"), "give one, as keras.optimizers.Adam()")
    wrapped = hvd.DistributedOptimizer(sgd())
    refused(lambda: hvd.DistributedOptimizer(wrapped), "is a DistributedOptimizer already")
    refused(lambda: hvd.DistributedOptimizer(sgd(), op=engine.Adasum), "only supports")


if __name__ == "__main__":
    main()
