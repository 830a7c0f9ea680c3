"""TF_CONFIG, by which tf.distribute knows the job, from what ddlrun says of it."""

from __future__ import annotations

import json
import os
import socket


def write() -> None:
    """Sets TF_CONFIG on every rank, unless it is set, or there is one rank.

    Call it on all ranks, before TensorFlow makes its strategy. Each rank is a worker; its port is
    one that is free, and the ranks tell each other by MPI.
    """
    if "TF_CONFIG" in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return
    from mpi4py import MPI

    with socket.socket() as mine:  # open until all have theirs, so that no two get the same
        mine.bind(("", 0))
        address = f"{own_address(os.environ['MASTER_ADDR'])}:{mine.getsockname()[1]}"
        workers = MPI.COMM_WORLD.allgather(address)
    task = {"type": "worker", "index": MPI.COMM_WORLD.rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})


def own_address(master: str) -> str:
    """By what other ranks reach this host: the address from which it reaches rank 0's host.

    On rank 0's host that is often the loopback, which is of no use to others: there it is the name
    that `ddlrun` chose.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 9))  # sends nothing
        address: str = probe.getsockname()[0]
    return master if address.startswith("127.") else address
