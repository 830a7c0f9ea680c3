"""Communicators of some ranks, in any order."""

import jax
import numpy as np
from harness import RANK, SIZE, all_same, case, everyone, mapped
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P


@case
def test_ranks_in_another_order() -> None:
    mesh = Mesh(jax.devices()[::-1], "i")
    given = everyone(2 * SIZE)
    all_same(mapped(lambda x: lax.psum(x, "i"), given, mesh, out=P()), given.sum(0)[None])
    gathered = mapped(lambda x: lax.all_gather(x, "i", tiled=True), given, mesh, out=P())
    all_same(gathered, given)
    result = mapped(lambda x: lax.psum_scatter(x[0], "i", tiled=True), given, mesh, out=P("i"))
    all_same(result, given.sum(0))
    result = mapped(lambda x: lax.all_to_all(x, "i", 1, 1, tiled=True), given, mesh)
    all_same(result, given.reshape(SIZE, SIZE, 2).transpose(1, 0, 2).reshape(SIZE, 2 * SIZE))


@case
def test_axes_of_a_mesh() -> None:
    if SIZE % 2:
        return
    mesh = Mesh(np.array(jax.devices()).reshape(2, SIZE // 2), ("a", "b"))
    given = everyone(6)
    halves = given.reshape(2, SIZE // 2, 6)
    summed = mapped(lambda x: lax.psum(x, "a"), given, mesh, P(("a", "b")), P("b"))
    all_same(summed, halves.sum(0))
    summed = mapped(lambda x: lax.psum(x, "b"), given, mesh, P(("a", "b")), P("a"))
    all_same(summed, halves.sum(1))
    turned = mapped(lambda x: lax.psum(x, "b"), given, mesh, P(("b", "a")), P("a"))
    all_same(turned, given.reshape(SIZE // 2, 2, 6).sum(0))
    every = mapped(lambda x: lax.all_gather(x, ("b", "a"), tiled=True), given, mesh, None, P())
    order = np.arange(SIZE).reshape(2, SIZE // 2).T.ravel()
    all_same(every, given[order])


@case
def test_a_mesh_of_some_ranks() -> None:
    for members in ([SIZE - 1, 0], [1 % SIZE], [0, SIZE - 1]):
        if len(set(members)) < len(members) or RANK not in members:
            continue
        mesh = Mesh([jax.devices()[rank] for rank in members], "i")
        given = everyone(6)[members]
        result = mapped(lambda x: lax.psum(x, "i"), given, mesh, out=P())
        all_same(result, given.sum(0)[None])
        result = mapped(lambda x: lax.all_gather(x, "i", tiled=True), given, mesh, out=P())
        all_same(result, given)
