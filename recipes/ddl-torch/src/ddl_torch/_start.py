"""How a rank comes to its MPI and to torch's store, whoever has started it.

ddlrun gives both. `srun --mpi=pmi2` and mpiexec give MPI alone: `take_mpi_jobs` makes a store.
torchrun, accelerate and Lightning give a store alone: `start` lets MPI meet by it.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

from ddl_torch import _pmi


def start(options: Any) -> None:
    """Start ddl for a group (`_DistributedBackendOptions`), unless it runs; collective.

    Raises:
        ValueError: MPI cannot be started for a group of some ranks, or torch and whoever answers
            this process's MPI disagree about who it is.
        DDLError: of `ddl.init`.
    """
    import ddl

    if ddl.initialized():
        return
    rank, size = _in_torch(options)
    if size > 1 and not _is_known_to_mpi(rank, size):
        if size != options.group_size:
            raise ValueError(
                f"backend ddl: MPI cannot begin with a group of {options.group_size} of {size} "
                'ranks; call init_process_group("ddl"), or start the program with ddlrun'
            )
        import torch.distributed as dist

        server = _pmi.Server(dist.PrefixStore("ddl-pmi", options.store), rank, size, _host())
        server.start(os.environ)
        atexit.register(server.stop)  # after ddl's own end, which is registered later
    ddl.init()


def _in_torch(options: Any) -> tuple[int, int]:
    """This process's rank and the world size, as torch has them."""
    import torch.distributed as dist

    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return options.group_rank, options.group_size


def _is_known_to_mpi(rank: int, size: int) -> bool:
    """Whether MPI has been told the same."""
    if not _pmi.is_there(os.environ):
        return False
    told = [os.environ.get(name, "") for name in ("PMI_RANK", "PMI_SIZE")]
    if told == [str(rank), str(size)] or not all(told):
        return True
    if "TORCHELASTIC_RUN_ID" in os.environ or told[1] == "1":
        return False  # torchrun's agent, or a shell, is the rank of MPI, and we are its child
    raise ValueError(
        f"this process is rank {rank} of {size} for torch (RANK, WORLD_SIZE), but rank {told[0]} "
        f"of {told[1]} for MPI (PMI_RANK, PMI_SIZE); start the program with one launcher, and "
        "leave RANK and WORLD_SIZE to it"
    )


def _host() -> str:
    """A name that this host shares with no other one, though hosts of a cloud are called alike."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"


def take_mpi_jobs() -> None:
    """Let `init_process_group("ddl")` do without RANK and the like: torch reads no MPI's."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    torchs = distributed_c10d.init_process_group
    signature = inspect.signature(torchs)

    @functools.wraps(torchs)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        if _asks_the_environment(given.arguments):
            given.arguments |= _from_mpi(given.arguments.get("timeout"))
        torchs(*given.args, **given.kwargs)

    dist.init_process_group = distributed_c10d.init_process_group = init_process_group


def _asks_the_environment(given: dict[str, Any]) -> bool:
    """Whether torch would look for variables that are not there, for a group of ours."""
    named = any(given.get(name, none) != none for name, none in (("rank", -1), ("world_size", -1)))
    return (
        "ddl" in str(given.get("backend")).lower().replace(",", ":").split(":")
        and given.get("init_method") in (None, "env://")
        and given.get("store") is None
        and not named
        and not {"RANK", "WORLD_SIZE"} & set(os.environ)
    )


def _from_mpi(timeout: timedelta | None) -> dict[str, Any]:
    """Rank, size and a store for the ranks that MPI has started; collective.

    Sets the variables that torchrun would, which programs read too.
    """
    import ddl
    import numpy as np
    import torch.distributed as dist

    ddl.init()
    rank, size = ddl.rank(), ddl.size()
    variables = {"RANK": rank, "WORLD_SIZE": size}
    variables |= {"LOCAL_RANK": ddl.local_rank(), "LOCAL_WORLD_SIZE": ddl.local_size()}
    address = "localhost" if ddl.num_hosts() == 1 else ddl.host_name(0)
    port = np.zeros(1, np.int64)
    limit = {} if timeout is None else {"timeout": timeout}
    store = None
    if rank == 0:
        store = dist.TCPStore(address, 0, size, True, wait_for_workers=False, **limit)
        port[0] = store.port
    ddl.broadcast(port, root=0)
    if store is None:
        store = dist.TCPStore(address, int(port[0]), size, False, **limit)
    os.environ.update({name: str(value) for name, value in variables.items()})
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port[0]))
    return {"store": store, "rank": rank, "world_size": size, "init_method": None}
