"""Reservations of several hosts that ddlrun recognises and cannot read.

One rank would start on one host there, and the others would idle. Each line is from the
documentation of the system that sets the variable.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ddl.launch.errors import LaunchError
from ddl.launch.hosts import whole_number


class Sign(NamedTuple):
    """A system, a variable of its jobs, and how its value tells the number of hosts."""

    system: str
    variable: str
    count: Callable[[str], int]


def _items(value: str) -> int:
    """Different names in a list; numbers behind a colon are not part of them."""
    found = re.split(r"[\s,;]+", value.strip())
    return len({item.partition(":")[0] for item in found if item})


def _json_items(value: str) -> int:
    try:
        found = json.loads(value)
    except ValueError:
        return 0
    return len(found) if isinstance(found, list) else 0


SIGNS = (
    Sign("PBS", "PBS_NUM_NODES", whole_number),  # Torque's
    Sign("Cobalt", "COBALT_PARTSIZE", whole_number),
    Sign("Cobalt", "COBALT_JOBSIZE", whole_number),
    Sign("LoadLeveler", "LOADL_PROCESSOR_LIST", _items),
    Sign("Fujitsu's PJM", "PJM_NODE", whole_number),
    Sign("AWS Batch", "AWS_BATCH_JOB_NUM_NODES", whole_number),
    Sign("Azure Batch", "AZ_BATCH_HOST_LIST", _items),
    Sign("Azure Batch", "AZ_BATCH_NODE_LIST", _items),
    Sign("SageMaker", "SM_HOSTS", _json_items),
    Sign("Kubeflow's PyTorchJob", "PET_NNODES", whole_number),
    Sign("Volcano", "VC_WORKER_HOSTS", _items),
)


def refuse_unread(environ: Mapping[str, str]) -> None:
    """LaunchError if a system that `batch.py` does not read has given us several hosts."""
    for system, variable, count in SIGNS:
        value = environ.get(variable, "")
        if value and (number := count(value)) > 1:
            raise LaunchError(
                f"{system} has reserved {number} hosts ({variable}={value[:60]}), "
                "but ddlrun cannot read which",
                "Name them: -H h1,h2. Or -H localhost, for this one alone.",
            )
