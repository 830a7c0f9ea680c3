"""Limits the threads that TensorFlow takes on this rank."""

from __future__ import annotations

import os


def share_cores() -> None:
    """Give TensorFlow as many threads as this rank has cores, unless the user has said otherwise.

    TensorFlow takes a thread for every core that it may run on; where ranks share cores, all ranks
    together would have too many. `ddlrun` has counted: OMP_NUM_THREADS is this rank's share.
    TensorFlow reads the variables when it first computes.
    """
    share = os.environ.get("OMP_NUM_THREADS", "")
    if "LOCAL_WORLD_SIZE" in os.environ and share.isdigit() and int(share) > 0:
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", share)
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(max(2, int(share))))
