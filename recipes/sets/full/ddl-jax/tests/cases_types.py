"""XLA's own collectives by ddl: every element type, on all ranks."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from ddl_jax import collectives
from harness import MESH, RANK, SIZE, all_same, case, everyone, mapped, refused, same
from jax import lax
from jax.sharding import PartitionSpec as P

WHOLE = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
#: XLA reduces none of them on CPUs, whoever carries its collectives.
NARROW = ["float16", "float8_e4m3fn", "float8_e5m2"]
LITTLE = ["int4", "uint4"]
EVERY = ["bool", *LITTLE, *WHOLE, *FLOATS, *COMPLEX, *NARROW]


def rows(name: str, n: int = 3 * SIZE) -> np.ndarray:
    return everyone(n, dtype=jnp.dtype(name))


@case
def test_ddl_carries_them() -> None:
    assert os.environ["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] == "mpi"
    functions = [
        lambda x: lax.psum(x, "i"),
        lambda x: lax.pmax(x, "i"),
        lambda x: lax.psum_scatter(x[0], "i", tiled=True),
        lambda x: lax.all_gather(x, "i", tiled=True),
        lambda x: lax.all_to_all(x, "i", 1, 1, tiled=True),
    ]
    for name in [*WHOLE, *FLOATS]:
        for number, function in enumerate(functions):
            before = collectives()
            mapped(function, rows(name))
            assert SIZE == 1 or collectives() == before + 1, (name, number)


@case
def test_sums() -> None:
    for name in [*LITTLE, *WHOLE, *FLOATS, *COMPLEX]:
        for n in (1, 1000, 100_003):
            wide = everyone(n).astype(np.complex128).sum(0)
            result = mapped(lambda x: lax.psum(x, "i"), rows(name, n), out=P())
            expected = wide.real.astype(np.int64) % 16 if name == "uint4" else wide
            if name == "int4":
                expected = (wide.real.astype(np.int64) + 8) % 16 - 8
            all_same(result, expected[None])


@case
def test_minima_and_maxima() -> None:
    for name in ["bool", *LITTLE, *WHOLE, *FLOATS]:
        given = rows(name).astype(jnp.dtype(name))
        if name.startswith("uint") and name != "uint4":
            given = (given - 2).astype(name)  # the largest are among them: -2 turns around
        wide = given.astype(object if "64" in name else np.float64)
        all_same(mapped(lambda x: lax.pmin(x, "i"), given, out=P()), wide.min(0)[None])
        all_same(mapped(lambda x: lax.pmax(x, "i"), given, out=P()), wide.max(0)[None])


@case
def test_scattered_sums() -> None:
    for name in [*WHOLE, *FLOATS, *COMPLEX]:
        given = rows(name, 5 * SIZE)
        result = mapped(lambda x: lax.psum_scatter(x[0], "i", tiled=True), given, out=P("i"))
        all_same(result, given.astype(np.complex128).sum(0))


@case
def test_blocks_of_every_type() -> None:
    for name in EVERY:
        given = rows(name, 2 * SIZE)
        if name not in NARROW:
            gathered = mapped(lambda x: lax.all_gather(x, "i", tiled=True), given, out=P())
            all_same(gathered, given.astype(np.complex128))
        exchanged = mapped(lambda x: lax.all_to_all(x, "i", 1, 1, tiled=True), given)
        expected = given.reshape(SIZE, SIZE, 2).transpose(1, 0, 2).reshape(SIZE, 2 * SIZE)
        all_same(exchanged, expected.astype(np.complex128))
        ring = [(rank, (rank + 1) % SIZE) for rank in range(SIZE)]
        passed = mapped(lambda x, ring=ring: lax.ppermute(x, "i", ring), given)
        all_same(passed, np.roll(given, 1, 0).astype(np.complex128))


@case
def test_permutes_with_holes() -> None:
    given = rows("float32", 7)
    if SIZE > 1:
        result = mapped(lambda x: lax.ppermute(x, "i", [(0, SIZE - 1)]), given)
        expected = np.zeros_like(given)
        expected[SIZE - 1] = given[0]
        all_same(result, expected)


@case
def test_types_that_xla_refuses() -> None:
    if SIZE == 1:
        return
    for name in NARROW:
        refused(lambda: mapped(lambda x: lax.psum(x, "i"), rows(name)), "unsupported")  # noqa: B023
    refused(lambda: mapped(lambda x: lax.pmax(x, "i"), rows("complex64")), "unsupported")


@case
def test_large_arrays() -> None:
    given = everyone(SIZE * (1 << 20))
    all_same(mapped(lambda x: lax.psum(x, "i"), given, out=P()), given.sum(0)[None])
    scattered = mapped(lambda x: lax.psum_scatter(x[0], "i", tiled=True), given, out=P("i"))
    all_same(scattered, given.sum(0))
    gathered = mapped(lambda x: lax.all_gather(x, "i", tiled=True), given, out=P())
    all_same(gathered, given)


@case
def test_many_in_one_program() -> None:
    given = everyone(8)

    def body(x: jax.Array) -> jax.Array:
        def step(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            return lax.psum(carry, "i") / SIZE + lax.pmax(carry, "i") * 0, None

        return lax.scan(step, x, None, length=50)[0]

    result = mapped(body, given)
    mean = given.astype(np.float64).mean(0)
    for _, ours in result:
        assert np.allclose(ours[0], mean, rtol=1e-5), (ours, mean)


@case
def test_its_own_rank() -> None:
    result = mapped(lambda x: x * 0 + lax.axis_index("i"), everyone(1))
    same(result[0][1], np.full((1, 1), RANK))
    assert MESH.devices[RANK].process_index == RANK
