"""`ddl.jax` inside jit and outside, against NumPy."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import ddl.jax as dj
import jax
import jax.numpy as jnp
import numpy as np
from harness import RANK, SIZE, case, everyone, given, refused, same
from jax._src import dispatch
from jax._src.interpreters import pxla
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

TYPES = [
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]
ORACLES = {"sum": np.sum, "min": np.min, "max": np.max, "product": np.prod}


def mine(*shape: int, dtype: Any = np.float32) -> jax.Array:
    return jnp.asarray(given(RANK, *shape, dtype=dtype))


@case
def test_who_we_are() -> None:
    assert (dj.rank(), dj.size()) == (RANK, SIZE)


@case
def test_reductions_of_every_type() -> None:
    for name in TYPES:
        dtype = jnp.dtype(name)
        for op, oracle in ORACLES.items():
            if name.startswith("complex") and op in ("min", "max"):
                continue
            wide = np.complex128 if name.startswith("complex") else np.float64
            given_all = everyone(5, dtype=dtype)
            expected = oracle(given_all.astype(wide), axis=0)
            for way in (dj.allreduce, jax.jit(dj.allreduce, static_argnums=1)):
                result = way(mine(5, dtype=dtype), op)
                assert result.dtype == dtype
                same(result, expected)


@case
def test_some_ranks() -> None:
    """Pairs of neighbours, and each rank by itself."""
    pair = [RANK - RANK % 2, RANK - RANK % 2 + 1] if SIZE > 1 else [0]
    rows = everyone(5)[pair]
    tree = {"a": mine(5), "b": mine(5) * 2}
    for way in (
        lambda x: dj.allreduce(x, ranks=pair),
        jax.jit(lambda x: dj.allreduce(x, ranks=pair)),
    ):
        same(way(tree)["a"], rows.sum(0))
        same(way(tree)["b"], 2 * rows.sum(0))
    same(dj.allreduce(mine(5) * len(pair), "mean", ranks=pair), rows.sum(0))
    as_complex = mine(5, dtype=np.complex64) * len(pair)
    same(dj.allreduce(as_complex, "mean", ranks=pair), rows.sum(0))
    same(dj.allreduce(mine(5), ranks=[RANK]), given(RANK, 5))
    loss = lambda x: jnp.sum(dj.allreduce(x, ranks=pair))  # noqa: E731
    same(jax.grad(loss)(mine(5)), np.full(5, len(pair)))
    same(jax.vmap(lambda x: dj.allreduce(x, ranks=pair))(mine(3, 4)), everyone(3, 4)[pair].sum(0))


@case
def test_booleans() -> None:
    rows = everyone(9, dtype=np.bool_)
    same(dj.allreduce(mine(9, dtype=np.bool_), "max"), rows.any(0))
    same(dj.allreduce(mine(9, dtype=np.bool_), "min"), rows.all(0))


@case
def test_means() -> None:
    for name in ("float16", "float32", "float64", "complex64"):
        result = dj.allreduce(mine(7, dtype=jnp.dtype(name)) * SIZE, "mean")
        same(result, everyone(7).sum(0))


@case
def test_blocks() -> None:
    for name in (*TYPES, "bool", "float8_e4m3fn"):
        dtype = jnp.dtype(name)
        rows = everyone(2 * SIZE, 3, dtype=dtype)
        x = mine(2 * SIZE, 3, dtype=dtype)
        same(jax.jit(dj.allgather)(x), rows.astype(np.complex128))
        exchanged = rows.reshape(SIZE, SIZE, 2, 3)[:, RANK].reshape(2 * SIZE, 3)
        same(jax.jit(dj.alltoall)(x), exchanged.astype(np.complex128))
        same(jax.jit(dj.broadcast, static_argnums=1)(x, SIZE - 1), rows[-1].astype(np.complex128))


@case
def test_scattered_reductions() -> None:
    for name in TYPES:
        dtype = jnp.dtype(name)
        wide = np.complex128 if name.startswith("complex") else np.float64
        rows = everyone(3 * SIZE, 2, dtype=dtype).astype(wide)
        for op, oracle in ORACLES.items():
            if name.startswith("complex") and op in ("min", "max"):
                continue
            expected = oracle(rows, axis=0)[3 * RANK : 3 * RANK + 3]
            same(dj.reducescatter(mine(3 * SIZE, 2, dtype=dtype), op), expected)


@case
def test_trees_and_fusion() -> None:
    tree = {"a": mine(3), "b": [mine(2, 2), mine(4, dtype=np.int32)], "c": mine(300_000)}
    before = calls()
    result = jax.block_until_ready(jax.jit(dj.allreduce)(tree))
    assert calls() - before == 3, calls() - before  # a and b[0] in one, b[1], and c
    same(result["a"], everyone(3).sum(0))
    same(result["b"][0], everyone(2, 2).sum(0))
    same(result["b"][1], everyone(4).sum(0))
    same(result["c"], everyone(300_000).sum(0))


@case
def test_sizes_of_messages() -> None:
    tree = [mine(3), mine(2)]
    for most, messages in ("0", 2), ("12", 2), ("20", 1), (str(1 << 30), 1):
        with size_of_messages(most):
            before = calls()
            jax.block_until_ready(dj.allreduce(tree))
            assert calls() - before == messages, most
    for wrong in "", "-1", "many", "1_0", "1.5", "²", str((1 << 30) + 1):
        with size_of_messages(wrong):
            refused(lambda: dj.allreduce(tree), "DDL_FUSION_BYTES: expected a whole number")


@contextlib.contextmanager
def size_of_messages(text: str) -> Iterator[None]:
    """DDL_FUSION_BYTES, which libddl has read before."""
    os.environ["DDL_FUSION_BYTES"] = text
    try:
        yield
    finally:
        del os.environ["DDL_FUSION_BYTES"]


def calls() -> int:
    from ddl_jax._primitive import library

    return int(library().ddl_jax_calls())


@case
def test_empty_and_scalar() -> None:
    same(dj.allreduce(jnp.zeros((0, 3))), np.zeros((0, 3)))
    same(dj.allreduce(jnp.float32(RANK)), np.asarray(sum(range(SIZE))))
    same(dj.allgather(jnp.float32(RANK)), np.arange(SIZE))


@case
def test_the_order_is_that_of_the_program() -> None:
    """Each rank makes another call wait for work: without an order, ranks would not match."""

    def slow(x: jax.Array, rounds: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, rounds, lambda _, y: jnp.sin(y) + 1, x)

    @jax.jit
    def program(x: jax.Array, rounds: jax.Array) -> list[jax.Array]:
        results = []
        for number in range(8):
            part = slow(x[: number + 1], jnp.where(number % SIZE == RANK, rounds, 0)) * 0 + 1
            results.append(dj.allreduce(part))
        dj.barrier()
        return results

    for _ in range(5):
        for number, result in enumerate(program(jnp.ones(100), jnp.int32(200_000))):
            same(result, np.full(number + 1, SIZE))


def late(x: jax.Array, rounds: int) -> jax.Array:
    """Ones, after a while. XLA runs little programs at once, so there are products first."""
    square = x[:, None] * x[None, :]
    start = (square @ square).sum(0) * 0 + x
    return jax.lax.fori_loop(0, rounds, lambda _, y: jnp.sin(y) + 1, start) * 0 + 1


@case
def test_programs_keep_the_order_of_their_thread() -> None:
    """Of one device, of all, and without results; all are dispatched before the first has run."""
    world = Mesh(jax.devices(), "d")
    whole = np.ones((SIZE, 70), np.float32)
    spread = jax.make_array_from_callback(
        whole.shape, jax.NamedSharding(world, P("d")), lambda index: whole[index]
    )
    of_one = jax.jit(lambda x, rounds: dj.allreduce(late(x, rounds)))
    of_all = jax.jit(
        jax.shard_map(
            lambda x: dj.allreduce(late(x[0], 10)), mesh=world, in_specs=P("d"), out_specs=P("d")
        )
    )
    of_none = jax.jit(lambda x: jax.lax.cond(late(x, 10)[0] > 0, dj.barrier, lambda: None))
    long, short, some = jnp.ones(100), jnp.ones(50), jnp.ones(3)
    for turn in range(6):
        rounds = 100_000 if turn % SIZE == RANK else 0
        results = [of_one(long, rounds), of_one(short, 0), of_all(spread), of_one(long, rounds)]
        of_none(short)
        results += [of_one(short, 0), of_all(spread)]
        gathered = dj.allgather(some)
        for result in results:
            same(result.addressable_shards[0].data[:3], np.full(3, SIZE))
        same(gathered, np.ones((SIZE, 3)))


@case
def test_a_program_of_one_device_is_dispatched_like_any_other() -> None:
    """JAX's way in Python takes longer than a small allreduce."""
    x, by_python = jnp.ones(9), []
    run = pxla.ExecuteReplicated.__call__

    def counted(self: Any, *args: Any) -> Any:
        by_python.append(self)
        return run(self, *args)

    pxla.ExecuteReplicated.__call__ = counted
    try:
        program = jax.jit(lambda x: dj.allreduce(x) + 1)
        for _ in range(4):
            same(program(x), np.full(9, SIZE + 1))
    finally:
        pxla.ExecuteReplicated.__call__ = run
    assert len(by_python) == 1, len(by_python)


@case
def test_the_end_of_effects_is_waited_for() -> None:
    done = calls()
    jax.jit(lambda x: dj.allreduce(late(x, 100_000)))(jnp.ones(100))
    jax.effects_barrier()
    assert calls() == done + 1


@case
def test_exported_programs() -> None:
    """One program calls another that was exported, and keeps the order."""
    ours = [jax.export.DisabledSafetyCheck.custom_call("ddl_collective")]
    double = jax.jit(lambda x: dj.allreduce(x) * 2)
    exported = jax.export.export(double, disabled_checks=ours)(jnp.ones(4))
    assert exported.ordered_effects
    result = jax.jit(lambda x: exported.call(dj.allreduce(x)))(jnp.ones(4))
    same(result, np.full(4, 2 * SIZE * SIZE))


@case
def test_scan_and_cond() -> None:
    @jax.jit
    def program(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            total = dj.allreduce(row)
            return jax.lax.cond(
                carry[0] > -1, lambda c: dj.allreduce(c, "max"), jnp.sin, carry
            ), total

        return jax.lax.scan(step, x[0], x)

    carry, totals = program(mine(6, 3))
    same(totals, everyone(6, 3).sum(0))
    same(carry, everyone(6, 3)[:, 0].max(0))


@case
def test_while_loops() -> None:
    result = jax.jit(
        lambda x: jax.lax.while_loop(lambda y: y[0] < 1000, lambda y: dj.allreduce(y) + 1, x)
    )(jnp.ones(2))
    expected = 1.0
    while expected < 1000:
        expected = expected * SIZE + 1
    same(result, np.full(2, expected))


@case
def test_shard_map() -> None:
    local = Mesh(jax.local_devices(), "d")
    run = jax.shard_map(dj.allreduce, mesh=local, in_specs=P("d"), out_specs=P("d"))
    same(jax.jit(run)(mine(8)), everyone(8).sum(0))
    world = Mesh(jax.devices(), "d")
    whole = everyone(4)
    array = jax.make_array_from_callback(
        whole.shape, jax.NamedSharding(world, P("d")), lambda index: whole[index]
    )

    def both(x: jax.Array) -> jax.Array:
        return dj.allreduce(x) + jax.lax.psum(x, "d") + dj.allreduce(x * 2)

    run = jax.shard_map(both, mesh=world, in_specs=P("d"), out_specs=P("d"))
    same(jax.jit(run)(array).addressable_shards[0].data, 4 * whole.sum(0)[None])


@case
def test_vmap() -> None:
    x = mine(4, 2 * SIZE, 3)
    rows = everyone(4, 2 * SIZE, 3)
    for axis in (0, 2):
        same(jax.vmap(dj.allreduce, axis, axis)(x), rows.sum(0))
        gathered = np.stack([rows.take(i, axis + 1) for i in range(x.shape[axis])])
        same(jax.vmap(dj.allgather, axis)(x), gathered)
    blocks = rows.reshape(SIZE, 4, SIZE, 2, 3)
    exchanged = np.moveaxis(blocks[:, :, RANK], 0, 1).reshape(4, 2 * SIZE, 3)
    same(jax.vmap(dj.alltoall)(x), exchanged)
    same(jax.vmap(dj.reducescatter)(x), rows.sum(0)[:, 2 * RANK : 2 * RANK + 2])
    same(jax.jit(jax.vmap(dj.broadcast))(x), rows[0])


@case
def test_wrong_arguments() -> None:
    refused(lambda: dj.allreduce(mine(3), "median"), "op is 'median' but must be one of")
    refused(lambda: dj.allreduce(mine(3, dtype=np.int32), "mean"), "mean of int32")
    refused(lambda: dj.allreduce(mine(3, dtype=jnp.float8_e5m2)), "float8_e5m2 has no sum")
    refused(lambda: dj.allreduce(mine(3, dtype=np.bool_)), "bool has no sum")
    refused(lambda: dj.allreduce(mine(3, dtype=np.complex64), "max"), "has no order")
    refused(lambda: dj.allreduce(jnp.ones(4, jnp.int4)), "int4 do not travel")
    refused(lambda: dj.allgather(jax.random.key(0)), "do not travel")
    refused(lambda: dj.broadcast(mine(3), SIZE), "root is")
    refused(lambda: dj.allreduce(mine(3), ranks=[RANK + 1]), "ranks is")
    refused(lambda: dj.allreduce(mine(3), ranks=[RANK, SIZE]), "ranks is")
    refused(lambda: dj.allreduce(mine(3), "max", ranks=[RANK]), "must be 'sum' or 'mean'")
    if SIZE > 1:
        refused(lambda: dj.alltoall(mine(SIZE + 1)), "must be a multiple of")
        refused(lambda: dj.reducescatter(jnp.float32(1)), "must be a multiple of")
    with jax.enable_x64(False):
        refused(lambda: dj.allreduce(np.ones(3)), "enable jax_enable_x64")


@case
def test_ranks_that_disagree() -> None:
    if SIZE > 1:
        refused(lambda: np.asarray(dj.allreduce(jnp.ones(3 + RANK))), "did not make the same call")
        same(dj.allreduce(jnp.ones(3)), np.full(3, SIZE))
        other = lambda: np.asarray(dj.allreduce(jnp.ones(3)))  # noqa: E731
        for without_result in dj.barrier, late_barrier:
            refused(without_result if RANK == 0 else other, "did not make the same call")
        dispatch.runtime_tokens.clear()  # JAX keeps the error of an effect


def late_barrier() -> None:
    """By a program without results, whose error JAX's tokens keep."""
    meet = lambda x: jax.lax.cond(late(x, 10)[0] > 0, dj.barrier, lambda: None)  # noqa: E731
    jax.jit(meet)(jnp.ones(50))
    jax.effects_barrier()
