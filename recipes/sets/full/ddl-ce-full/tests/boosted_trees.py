"""XGBoost's trees of rows that are spread over the ranks.

    ddlrun -H localhost:2 python boosted_trees.py predictions.npy

The tracker, by which XGBoost's workers find each other, is the first rank's.
"""

import sys

import numpy as np
import xgboost
from mpi4py import MPI
from xgboost.tracker import RabitTracker


def main(target: str) -> None:
    comm = MPI.COMM_WORLD
    generator = np.random.default_rng(0)
    # Few different values, so that the ranks' histograms have the same bins as one rank's.
    x = generator.integers(0, 16, (512, 6)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 60).astype(np.float32)
    tracker = None
    if comm.rank == 0:
        tracker = RabitTracker(host_ip="127.0.0.1", n_workers=comm.size)
        tracker.start()
    arguments = comm.bcast(tracker.worker_args() if tracker else None)
    with xgboost.collective.CommunicatorContext(**arguments):
        mine = slice(comm.rank, None, comm.size)
        settings = {"objective": "binary:logistic", "max_depth": 3, "tree_method": "hist"}
        model = xgboost.train(settings, xgboost.DMatrix(x[mine], y[mine]), 10)
        predictions = model.predict(xgboost.DMatrix(x))
    if tracker:
        tracker.wait_for()
        assert ((predictions > 0.5) == y).mean() > 0.9
        np.save(target, predictions)


if __name__ == "__main__":
    main(sys.argv[1])
