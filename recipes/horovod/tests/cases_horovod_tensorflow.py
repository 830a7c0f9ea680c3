"""What only horovod.tensorflow has: variables, sparse gradients, tapes, ops that ask for ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from horovod import tensorflow as hvd
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SIZE, case, close, everyone, given, refused, same
from hvd_sets import added


def tensor(*shape: int, rank: int = RANK, dtype: str = "float32", salt: int = 0) -> tf.Tensor:
    return tf.cast(given(rank, *shape, salt=salt), dtype)


@case
def what_was_built(f: Frame) -> None:
    assert hvd.ddl_built()
    assert hvd.mpi_built()
    assert hvd.mpi_enabled()
    assert hvd.is_initialized()
    assert (hvd.local_rank(), hvd.local_size()) == (RANK, SIZE)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)


@case
def ranks_and_sizes_in_a_graph(f: Frame) -> None:
    @tf.function
    def ask() -> list[tf.Tensor]:
        included = hvd.process_set_included_op(name="included")
        return [
            *(hvd.rank_op(name="r"), hvd.size_op(name="s")),
            *(hvd.local_rank_op(name="lr"), hvd.local_size_op(name="ls"), included),
        ]

    assert [int(value) for value in ask()] == [RANK, SIZE, RANK, SIZE, 1]


@case
def a_shape_that_the_graph_does_not_know(f: Frame) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def reduce(value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return (
            hvd.allreduce(value, op=hvd.Sum, name=f.name("r")),
            hvd.allgather(value[: RANK + 1], name=f.name("g")),
        )

    for count in (SIZE, 7 + SIZE, SIZE):
        total, gathered = reduce(tensor(count, 3))
        same(total.numpy(), everyone(count, 3).sum(0), count)
        same(gathered.numpy(), np.concatenate([given(r, count, 3)[: r + 1] for r in RANKS]))


@case
def many_operations_of_one_graph(f: Frame) -> None:
    """Written down in another order on every rank; TensorFlow runs them in any."""
    count = 30

    @tf.function
    def reduce() -> list[tf.Tensor]:
        order = np.random.default_rng(RANK).permutation(count)
        out: dict[int, tf.Tensor] = {}
        for i in order:
            value = tensor(int(i) + 1, salt=int(i))
            if i % 3 == 0:
                out[i] = hvd.allgather(value, name=f.name(f"x{i}"))
            else:
                out[i] = hvd.allreduce(value, op=hvd.Sum, name=f.name(f"x{i}"))
        return [out[i] for i in range(count)]

    for _ in range(3):
        for i, out in enumerate(reduce()):
            whole = everyone(i + 1, salt=i)
            same(out.numpy(), whole.ravel() if i % 3 == 0 else whole.sum(0), i)


@case
def a_constant_is_reduced_at_every_call(f: Frame) -> None:
    """And not folded into the graph: what a rank that has joined gave before would stay in it."""

    @tf.function
    def reduce() -> tf.Tensor:
        return hvd.allreduce(tf.constant([1.0 + RANK]), op=hvd.Sum, name=f.name("x"))

    for _ in range(2):
        same(reduce().numpy(), np.array([sum(rank + 1.0 for rank in RANKS)]))
    alone = reduce().numpy() if RANK == SIZE - 1 else None
    hvd.join()
    if alone is not None:
        same(alone, np.array([float(SIZE)]))


@case
def compression(f: Frame) -> None:
    value = tf.fill([9], 1.0 + 2.0**-12 * (RANK + 1))
    out = hvd.allreduce(value, op=hvd.Sum, compression=hvd.Compression.fp16, name=f.name("r"))
    assert out.dtype == tf.float32
    same(out.numpy(), np.full(9, float(SIZE)))
    (out,) = hvd.grouped_allreduce(
        [tensor(4, dtype="float64")], op=hvd.Sum, compression=hvd.Compression.fp16
    )
    assert out.dtype == tf.float64
    same(out.numpy(), everyone(4).sum(0))


def slices(rank: int) -> tf.IndexedSlices:
    """Values for places rank and rank + 1 of SIZE + 1."""
    values = tf.constant([[1.0, 2.0], [3.0, 4.0]]) * (rank + 1)
    return tf.IndexedSlices(values, tf.constant([rank, rank + 1]), tf.constant([SIZE + 1, 2]))


def dense(value: tf.IndexedSlices) -> np.ndarray:
    whole = np.zeros((SIZE + 1, 2))
    np.add.at(whole, value.indices.numpy(), value.values.numpy().astype(np.float64))
    return whole


@case
def indexed_slices(f: Frame) -> None:
    total = sum(dense(slices(rank)) for rank in RANKS)
    for op, factor in ((hvd.Sum, 1), (hvd.Average, SIZE)):
        close(dense(hvd.allreduce(slices(RANK), op=op)), total / factor)
        outputs = hvd.grouped_allreduce([slices(RANK), slices(RANK)], op=op)
        for out in outputs:
            close(dense(out), total / factor)
    for op in (hvd.Min, hvd.Adasum):
        refused(lambda op=op: hvd.allreduce(slices(RANK), op=op), "", NotImplementedError)


@case
def variables_of_a_root(f: Frame) -> None:
    for inplace in (False, True):
        for root in RANKS:
            variables = [
                tf.Variable(tensor(5, 3), name=f"a{root}"),
                tf.Variable(tensor(2, dtype="int64"), name=f"b{root}"),
                tf.Variable(tensor(dtype="float16"), name=f"c{root}"),
                tf.Variable(tensor(4) > 2, name=f"d{root}"),
            ]
            hvd.broadcast_variables(variables, root_rank=root, inplace=inplace)
            same(variables[0].numpy(), given(root, 5, 3), (inplace, root))
            same(variables[1].numpy(), given(root, 2), (inplace, root))
            same(variables[2].numpy(), given(root), (inplace, root))
            same(variables[3].numpy(), given(root, 4) > 2, (inplace, root))


@case
def variables_in_a_graph(f: Frame) -> None:
    variable = tf.Variable(tensor(5), name="v")

    @tf.function
    def step() -> tf.Tensor:
        hvd.broadcast_variables([variable], root_rank=SIZE - 1, inplace=True)
        return hvd.allreduce(variable, op=hvd.Sum, name=f.name("r"))

    same(step().numpy(), SIZE * given(SIZE - 1, 5))
    refused(lambda: hvd.broadcast_global_variables(0), "eager", RuntimeError)


@case
def objects_in_a_process_set(f: Frame) -> None:
    with_set = {"process_set": hvd.global_process_set}
    found = hvd.allgather_object([RANK], name=f.name("g"), **with_set)
    assert found == [[rank] for rank in RANKS], found
    assert hvd.broadcast_object({RANK}, root_rank=0, name=f.name("b"), **with_set) == {0}


WEIGHT = tf.constant([[0.5, -1.0], [2.0, 0.25], [1.0, 1.0]])


def batch(rank: int) -> tf.Tensor:
    return tensor(4, 3, rank=rank)


def loss(weight: Any, bias: Any, inputs: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.square(inputs @ weight + bias))


def expected_gradients() -> list[np.ndarray]:
    """Of one process with everyone's batches."""
    weight, bias = tf.Variable(WEIGHT), tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        value = loss(weight, bias, tf.concat([batch(rank) for rank in RANKS], 0))
    return [gradient.numpy() for gradient in tape.gradient(value, [weight, bias])]


def taped(
    function_of_tape: Any, graph: bool, persistent: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The gradients that a tape gives, eagerly or in a graph, asked for once or twice."""
    weight, bias = tf.Variable(WEIGHT), tf.Variable([1.0, 2.0])

    def step() -> tuple[list[Any], list[Any]]:
        with tf.GradientTape(persistent=persistent) as tape:
            value = loss(weight, bias, batch(RANK))
        tape = function_of_tape(tape)
        first = tape.gradient(value, [weight, bias])
        return first, tape.gradient(value, [weight, bias]) if persistent else first

    first, second = tf.function(step)() if graph else step()
    return [g.numpy() for g in first], [g.numpy() for g in second]


@case
def distributed_tape(f: Frame) -> None:
    for graph in (False, True):
        for options in (
            {},
            {"gradient_predivide_factor": 2.0},
            {"groups": 1},
            {"groups": 2},
            {"op": hvd.Sum},
        ):
            gradients, _ = taped(lambda t, o=options: hvd.DistributedGradientTape(t, **o), graph)
            factor = SIZE if options.get("op") == hvd.Sum else 1
            for mine, expected in zip(gradients, expected_gradients(), strict=True):
                close(mine, factor * expected, 1e-4, (graph, options))
    gradients, _ = taped(
        lambda t: hvd.DistributedGradientTape(t, compression=hvd.Compression.fp16), True
    )
    for mine, expected in zip(gradients, expected_gradients(), strict=True):
        close(mine, expected, 2e-2, "fp16")
    for gradients in taped(hvd.DistributedGradientTape, False, persistent=True):
        for mine, expected in zip(gradients, expected_gradients(), strict=True):
            close(mine, expected, 1e-4, "persistent")


@case
def a_tape_with_groups_named_by_variables(f: Frame) -> None:
    weight, bias = tf.Variable(WEIGHT, name="w"), tf.Variable([1.0, 2.0], name="b")
    with tf.GradientTape() as tape:
        value = loss(weight, bias, batch(RANK))
    tape = hvd.DistributedGradientTape(tape, groups=[[weight, bias]])
    for mine, expected in zip(
        tape.gradient(value, [weight, bias]), expected_gradients(), strict=True
    ):
        close(mine.numpy(), expected, 1e-4)
    refused(lambda: hvd.DistributedGradientTape(tape, groups=-1), "non-negative", ValueError)


@case
def a_tape_refuses_to_predivide_sums(f: Frame) -> None:
    refused(
        lambda: hvd.DistributedGradientTape(
            tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0
        ),
        "not supported with op != Average",
        ValueError,
    )


@case
def a_variable_without_a_gradient(f: Frame) -> None:
    used, unused = tf.Variable(2.0 + RANK), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        value = used * used
    gradients = hvd.DistributedGradientTape(tape).gradient(value, [used, unused])
    close(gradients[0].numpy(), np.mean([2 * (2.0 + rank) for rank in RANKS]), 1e-5)
    assert gradients[1] is None


@case
def gradients_in_the_structure_of_their_sources(f: Frame) -> None:
    """As of tf.GradientTape: of one variable alone, and of any structure of them."""
    vector, scalar = tf.Variable([1.0, 2.0]), tf.Variable(3.0 + RANK)
    mean = np.mean([3.0 + rank for rank in RANKS])
    table = tf.Variable(tf.zeros([2 * SIZE, 2]))
    for sources in (vector, scalar, {"v": vector, "s": scalar}, (vector, [scalar, vector]), []):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(vector * vector) * scalar
        gradients = hvd.DistributedGradientTape(tape).gradient(value, sources)
        tf.nest.assert_same_structure(gradients, sources)
        for source, gradient in zip(*map(tf.nest.flatten, (sources, gradients)), strict=True):
            expected = 2 * mean * vector.numpy() if source is vector else 5.0
            close(gradient.numpy(), expected, 1e-5)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(tf.gather(table, [RANK, SIZE]))
    gradient = tf.convert_to_tensor(hvd.DistributedGradientTape(tape).gradient(value, table))
    close(gradient.numpy()[: SIZE + 1, 0], [1 / SIZE] * SIZE + [1.0], 1e-6)


@case
def sparse_gradients(f: Frame) -> None:
    """An embedding: gathered as slices, or made dense first."""
    table = tf.Variable(tf.reshape(tf.range(20.0), [10, 2]))
    words = [[rank % 10, (rank + 1) % 10, 9] for rank in RANKS]
    with tf.GradientTape() as tape:
        parts = [tf.reduce_sum(tf.square(tf.gather(table, part))) for part in words]
        everything = tf.add_n(parts) / SIZE
    expected = tf.convert_to_tensor(tape.gradient(everything, table)).numpy()
    for as_dense in (False, True):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(tf.square(tf.gather(table, words[RANK])))
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=as_dense)
        (gradient,) = tape.gradient(value, [table])
        assert isinstance(gradient, tf.IndexedSlices) != as_dense
        close(tf.convert_to_tensor(gradient).numpy(), expected, 1e-4, as_dense)


@case
def local_layers_of_a_tape(f: Frame) -> None:
    """Their gradients stay the rank's own; unless told otherwise, they are divided by SIZE."""
    for scale in (True, False):
        local = tf.keras.layers.Dense(2, kernel_initializer="ones", use_bias=False)
        common = tf.keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)
        common(local(batch(RANK)))
        sources = [local.trainable_weights[0], common.trainable_weights[0]]
        own = []
        for rank in RANKS:
            with tf.GradientTape() as tape:
                value = tf.reduce_mean(common(local(batch(rank))))
            own.append([g.numpy() for g in tape.gradient(value, sources)])
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(common(local(batch(RANK))))
        tape = hvd.PartialDistributedGradientTape(
            tape, local_layers=[local], scale_local_gradients=scale
        )
        mine, shared = tape.gradient(value, sources)
        close(mine.numpy(), own[RANK][0] / (SIZE if scale else 1), 1e-4, scale)
        close(shared.numpy(), np.mean([one[1] for one in own], 0), 1e-4, scale)
    refused(
        lambda: hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=["text"]),
        "Layer type",
        ValueError,
    )


@case
def a_tape_in_a_process_set(f: Frame) -> None:
    if SIZE == 1:
        return
    variable = tf.Variable(2.0 + RANK)
    with added(hvd, [0]) as chosen:
        with tf.GradientTape() as tape:
            value = variable * variable
        tape = hvd.DistributedGradientTape(tape, process_set=chosen)
        (gradient,) = tape.gradient(value, [variable])
    same(gradient.numpy(), 2 * (2.0 + RANK))


@case
def training_in_a_session(f: Frame) -> None:
    """TensorFlow 1's way: a graph, a session, and an optimizer of tf.compat.v1."""
    for passes in (1, 2):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            weight = tf.compat.v1.get_variable(
                f"w{passes}", initializer=tf.constant(3.0 + RANK), use_resource=True
            )
            optimizer = hvd.DistributedOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(0.1),
                backward_passes_per_step=passes,
            )
            step = optimizer.minimize(weight * tf.constant(RANK + 1.0))
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(tf.compat.v1.local_variables_initializer())
            session.run(hvd.broadcast_global_variables(0))
            close(session.run(weight), 3.0)
            for _ in range(2):
                session.run(step)
            mean = np.mean([rank + 1.0 for rank in RANKS])
            close(session.run(weight), 3.0 - 0.1 * 2 * mean, 1e-5, passes)


@case
def elastic_state(f: Frame) -> None:
    variable = tf.Variable(tensor(3), name="state")
    state = hvd.elastic.TensorFlowState([variable], epoch=RANK)
    state.sync()
    assert state.epoch == 0
    variable.assign([9.0, 9.0, 9.0])
    state.epoch = 4
    state.save()
    variable.assign([0.0, 0.0, 0.0])
    state.epoch = 5
    state.restore()
    assert state.epoch == 4
    same(variable.numpy(), np.full(3, 9.0))
