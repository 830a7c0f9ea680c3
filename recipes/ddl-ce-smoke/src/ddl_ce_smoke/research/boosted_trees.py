"""XGBoost's trees of rows that are spread over the ranks.

    ddlrun -H localhost:2 python -m ddl_ce_smoke.research.boosted_trees predictions.npy

The tracker, by which XGBoost's workers find each other, is the first rank's.
"""

from __future__ import annotations

import numpy as np
import xgboost
from mpi4py import MPI
from xgboost.tracker import RabitTracker

from ddl_ce_smoke.research.hosts import own_address
from ddl_ce_smoke.research.run import save


def train() -> np.ndarray:
    """The predictions of all rows, float32 of shape [rows]."""
    comm = MPI.COMM_WORLD
    generator = np.random.default_rng(0)
    # Few different values, so that the ranks' histograms have the same bins as one rank's.
    x = generator.integers(0, 16, (512, 6)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 60).astype(np.float32)
    tracker, address = None, own_address(comm)
    if comm.rank == 0:
        tracker = RabitTracker(host_ip=address, n_workers=comm.size)
        tracker.start()
    arguments = comm.bcast(tracker.worker_args() if tracker else None)
    with xgboost.collective.CommunicatorContext(**arguments):
        mine = slice(comm.rank, None, comm.size)
        settings = {"objective": "binary:logistic", "max_depth": 3, "tree_method": "hist"}
        model = xgboost.train(settings, xgboost.DMatrix(x[mine], y[mine]), 10)
        predictions: np.ndarray = model.predict(xgboost.DMatrix(x))
    if tracker:
        tracker.wait_for()
    assert ((predictions > 0.5) == y).mean() > 0.9
    return predictions


if __name__ == "__main__":
    save(train, __doc__)
