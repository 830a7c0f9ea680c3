"""How a rank comes to its MPI and to torch's store, whoever has started it.

ddlrun gives both. `srun --mpi=pmi2` and mpiexec give MPI alone: `take_mpi_jobs` makes a store.
torchrun, accelerate and Lightning give a store alone: `start` lets MPI meet by it, at each restart
anew (_round.py).
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import os
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddl_torch import _names, _pmi
from ddl_torch._round import Round

if TYPE_CHECKING:
    from collections.abc import Callable

_OTHERS_END = 60.0  # seconds for the ranks of a host to end, once its first has


def start(options: Any) -> None:
    """Start ddl for a group (`_DistributedBackendOptions`), unless it runs; collective.

    Raises:
        ValueError: MPI cannot be started for a group of some ranks, or torch and whoever answers
            this process's MPI disagree about who it is.
        DistBackendError: some ranks, which it names, did not come within the timeout.
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
        _meet_by(options.store, rank, size, options.timeout.total_seconds())
    else:
        ddl.init()


def _meet_by(store: Any, rank: int, size: int, seconds: float) -> None:
    """Start ddl, whose MPI meets by torch's store."""
    import ddl
    import torch.distributed as dist

    round_ = Round(dist.PrefixStore("ddl-pmi", store), rank, size, _host(), seconds)
    if round_.hosts.index(round_.hosts[rank]) == rank:
        _sweep_after_us()
    server = _pmi.Server(round_)
    server.start(os.environ)
    atexit.register(server.stop)  # after ddl's own end, which is registered later
    with round_.watch("MPI_Init"):
        ddl.init()


def _sweep_after_us() -> None:
    """Have a process remove what killed ranks of this host leave in /dev/shm; ddlrun does so, too.

    It begins as nobody's child, so that the program never waits for it.
    """
    from ddl.launch import sweep

    words = [sys.executable, "-I", "-S", sweep.__file__, str(os.getpid()), f"{_OTHERS_END:g}"]
    with contextlib.suppress(OSError):
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            check=False,
        )


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

    def wrap(torchs: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(torchs)

        def init_process_group(*args: Any, **kwargs: Any) -> None:
            given = signature.bind(*args, **kwargs)
            if _asks_the_environment(given.arguments):
                given.arguments |= _from_mpi(given.arguments.get("timeout"))
            torchs(*given.args, **given.kwargs)

        return init_process_group

    _names.replace_function("init_process_group", wrap)


def _asks_the_environment(given: dict[str, Any]) -> bool:
    """Whether torch would look for variables that are not there, for a group of ours."""
    named = any(given.get(name, none) != none for name, none in (("rank", -1), ("world_size", -1)))
    return (
        _names.is_asked_for(given.get("backend"))
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
