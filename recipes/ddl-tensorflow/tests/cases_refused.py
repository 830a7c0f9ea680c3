"""What is refused, and how; the ranks can go on afterwards."""

import ddl
import keras
import numpy as np
import tensorflow as tf
from ddl_tensorflow import moving, reducing
from harness import given, refused, same
from ranked import RANK, SIZE, case

Invalid = tf.errors.InvalidArgumentError


@case
def types_that_cannot_be_used() -> None:
    words = tf.constant(["a"])
    refused(lambda: ddl.allreduce(words), "allreduce: tensor 0: string cannot", TypeError)
    refused(lambda: ddl.broadcast(words), "broadcast: tensor 0: string tensors cannot", TypeError)
    refused(lambda: ddl.allgather(words), "allgather: tensor 0: string tensors cannot", TypeError)
    refused(lambda: ddl.allreduce(tf.constant(True)), "bool cannot be reduced", TypeError)
    whole = given(RANK, 2, dtype=tf.int32)
    refused(lambda: ddl.allreduce(whole, "average"), "the average of integers (int32)", ValueError)
    refused(lambda: ddl.allreduce(given(RANK, 2), "mean"), "unknown operation 'mean'", ValueError)
    slices = tf.IndexedSlices(given(RANK, 1, 2), [0])
    refused(lambda: ddl.allreduce(slices, "max"), "can be summed and averaged only", ValueError)


@case
def shapes_that_cannot_be_used() -> None:
    refused(lambda: ddl.allgather(tf.constant(1.0)), "a scalar has no rows", Invalid)
    refused(lambda: ddl.reduce_scatter(tf.constant(1.0)), "a scalar has no rows", Invalid)
    refused(lambda: ddl.alltoall(tf.constant(1.0)), "a scalar has no rows", Invalid)
    refused(lambda: ddl.broadcast(tf.ones(1), SIZE), f"root {SIZE} is no rank", Invalid)
    if SIZE > 1:
        odd = tf.ones(SIZE + 1)
        refused(lambda: ddl.reduce_scatter(odd), f"a multiple of the {SIZE} ranks", Invalid)
        refused(lambda: ddl.alltoall(odd), "give splits", Invalid)
    splits = [1] * SIZE
    refused(lambda: ddl.alltoall(tf.ones(SIZE + 1), splits), f"the sum {SIZE + 1}", Invalid)


@case
def splits_that_one_rank_gives_wrong() -> None:
    if SIZE > 1:
        splits = [1] * SIZE if RANK else [2] * SIZE
        words = "gave wrong splits" if RANK else "splits must be"
        refused(lambda: ddl.alltoall(tf.ones(SIZE), splits), words, Invalid)


@case
def ranks_that_disagree() -> None:
    """The message names the tensor and what each rank has; then all is well again."""
    if SIZE == 1:
        return
    other = 3 if RANK == 0 else 4
    refused(
        lambda: reducing.allreduce(tf.ones(other), name="weights"),
        "the ranks disagree on 'weights': tensor 0: float[3] on rank 0, tensor 0: float[4] on rank",
        Invalid,
    )
    refused(
        lambda: moving.allgather(tf.ones((2, other)), name="rows"),
        "disagree on 'rows': float[?,3] on rank 0, float[?,4] on rank 1",
        Invalid,
    )
    kind = tf.float32 if RANK == 0 else tf.float64
    refused(
        lambda: reducing.allreduce(tf.ones(2, kind), name="t"),
        "float[2] on rank 0, tensor 0: double[2]",
        Invalid,
    )
    refused(
        lambda: reducing.allreduce(tf.ones(2), "min" if RANK == 0 else "max", name="o"),
        "allreduce (min) on rank 0, allreduce (max) on rank 1",
        Invalid,
    )
    refused(
        lambda: reducing.allreduce_n([tf.ones(2)] * (1 if RANK else 2), name="n"),
        "tensor 1: float[2] on rank 0, no such tensor on rank 1",
        Invalid,
    )
    same(ddl.allreduce(tf.ones(2)), np.full(2, SIZE))


@case
def gradients_that_disagree_are_named() -> None:
    if SIZE == 1:
        return
    variable = keras.Variable(np.ones(3 + RANK, "float32"), name="weird")
    refused(
        lambda: ddl.grads_reduce([(tf.ones(3 + RANK), variable)], name="g"),
        "gradient of weird: float[3] on rank 0, gradient of weird: float[4] on rank 1",
        Invalid,
    )
    # What they are called may differ.
    labels = [f"dense_{RANK}/kernel", f"dense_{RANK}/bias"]
    tensors = [tf.ones(2), tf.ones(3 + RANK)]
    same(reducing.reduce_labelled(tensors[:1], labels[:1], name="h")[0], np.ones(2))
    refused(
        lambda: reducing.reduce_labelled(tensors, labels, name="i"),
        "disagree on 'i': dense_0/bias: float[3] on rank 0, dense_1/bias: float[4] on rank 1",
        Invalid,
    )


@case
def gradients_that_there_are_not() -> None:
    x = tf.ones(2)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = ddl.allreduce(x, "max")
    refused(lambda: tape.gradient(y, x), "no gradient of the operation 'max'", LookupError)


@case
def optimizers_that_are_none() -> None:
    refused(lambda: ddl.DistributedOptimizer("adam"), "str is no optimizer of Keras", TypeError)
