"""LightGBM's trees of rows that are spread over the ranks.

    ddlrun -H localhost:2 python -m ddl_ce_smoke.research.boosted_leaves predictions.npy

Its workers listen at addresses and ports that the ranks have told each other.
"""

from __future__ import annotations

import socket

import lightgbm
import numpy as np
from mpi4py import MPI

from ddl_ce_smoke.research.hosts import own_address
from ddl_ce_smoke.research.run import save


def train() -> np.ndarray:
    """The predictions of all rows, float64 of shape [rows]."""
    comm = MPI.COMM_WORLD
    address = own_address(comm)
    with socket.socket() as free:
        free.bind((address, 0))
        workers: list[tuple[str, int]] = comm.allgather((address, free.getsockname()[1]))
    generator = np.random.default_rng(0)
    # Few different values, so that each rank finds the bins that one rank finds.
    x = generator.integers(0, 16, (512, 6)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 60).astype(np.float32)
    settings = {
        "objective": "binary",
        "num_leaves": 7,
        "min_data_in_bin": 1,
        "verbose": -1,
        "tree_learner": "data",
        "pre_partition": True,
        "boost_from_average": False,  # it would average the ranks' logits
        "num_machines": comm.size,
        "machines": ",".join(f"{host}:{port}" for host, port in workers),
        "local_listen_port": workers[comm.rank][1],
    }
    mine = slice(comm.rank, None, comm.size)
    model = lightgbm.train(settings, lightgbm.Dataset(x[mine].copy(), y[mine]), 10)
    predictions: np.ndarray = model.predict(x)
    comm.Barrier()  # its network ends with the process
    assert ((predictions > 0.5) == y).mean() > 0.9
    return predictions


if __name__ == "__main__":
    save(train, __doc__)
