"""TF_CONFIG for tf.distribute's strategies: the task of each rank, and its address."""

import json
from collections.abc import Sequence

from ddl.launch.errors import LaunchError


def roles(size: int, parameter_servers: int) -> list[tuple[str, int]]:
    """Type and index of each rank's task.

    Without parameter servers all are workers, as MultiWorkerMirroredStrategy wants it. With N, the
    first N ranks are these, the next is the chief that runs the program, the others are workers.
    """
    if not parameter_servers:
        return [("worker", rank) for rank in range(size)]
    if size < parameter_servers + 2:
        raise LaunchError(
            f"-ps {parameter_servers}, but the job has {size} ranks",
            f"A chief and at least one worker are needed besides: -np {parameter_servers + 2}.",
        )
    servers = [("ps", index) for index in range(parameter_servers)]
    workers = [("worker", index) for index in range(size - parameter_servers - 1)]
    return [*servers, ("chief", 0), *workers]


def tf_variables(addresses: Sequence[str], parameter_servers: int) -> dict[str, str]:
    """The variables for rank.py's TF_CONFIG; `addresses` are `host:port` of each rank."""
    tasks = roles(len(addresses), parameter_servers)
    cluster: dict[str, list[str]] = {}
    for (kind, _), address in zip(tasks, addresses, strict=True):
        cluster.setdefault(kind, []).append(address)
    return {
        "DDLRUN_TF_CLUSTER": json.dumps(cluster),
        "DDLRUN_TF_TASKS": ",".join(f"{kind}:{index}" for kind, index in tasks),
    }
