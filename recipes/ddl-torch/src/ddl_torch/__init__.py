"""The backend `ddl` of torch.distributed, for tensors on the CPU and on CUDA GPUs.

    torch.distributed.init_process_group("ddl")

No import is needed: torch finds this package by itself. Start the program with `ddlrun`, by
`srun --mpi=pmi2`, mpiexec, torchrun or what stands on it. The backend runs over MPI and shared
memory by `libddl`, with the algorithms of DDL_OPTIONS.

GPU tensors need a torch with CUDA and the CUDA variant of ddl. An operation begins after what its
tensors' stream was given before, on a thread and a stream of its own; `wait()` returns when the
result is there.

Timeouts are torch's (30 minutes unless `init_process_group(timeout=...)` says else), for each
operation its own. `ddl.set_timeout` is for the program's own calls of ddl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddl_torch import _names, _start

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed import ProcessGroup

__all__ = ["register"]

_LEAVE_TIMEOUT_S = 5.0  # that a process which exits gives to operations under way


def register() -> None:
    """Make the backend's name known to torch; torch calls this at its import (`torch.backends`).

    It costs next to nothing: MPI and the extension are loaded when the first group is made.
    """
    import torch
    import torch.distributed as dist

    if dist.is_available() and _names.NAME not in dist.Backend.backend_list:
        devices = ["cpu", "cuda"] if torch.version.cuda else ["cpu"]
        dist.Backend.register_backend(_names.NAME, _create, extended_api=True, devices=devices)
        _names.take()
        _take_monitored_barriers()
        _start.take_mpi_jobs()


def _take_monitored_barriers() -> None:
    """Let `dist.monitored_barrier` take groups of ours: torch's own refuses all but Gloo's."""
    from datetime import timedelta

    from torch.distributed import distributed_c10d

    def wrap(torchs: Callable[..., None]) -> Callable[..., None]:
        def monitored_barrier(
            group: ProcessGroup | None = None,
            timeout: timedelta | float | None = None,
            wait_all_ranks: bool = False,
        ) -> None:
            if distributed_c10d._rank_not_in_group(group) or not _names.is_ours(group):
                torchs(group, timeout, wait_all_ranks)
                return
            limit = timedelta(seconds=timeout) if isinstance(timeout, (int, float)) else timeout
            options = {} if limit is None else {"timeout": limit}
            ours: Any = distributed_c10d._get_default_group() if group is None else group
            ours.monitored_barrier(**options, wait_all_ranks=wait_all_ranks)

        return monitored_barrier

    _names.replace_function("monitored_barrier", wrap)


def _create(options: Any, _backend_options: Any) -> ProcessGroup:
    """Make the backend of one process group (`_DistributedBackendOptions`); collective."""
    import atexit

    from ddl_torch import _backend

    _start.start(options)
    # Python ends in the reverse order: groups leave before ddl ends.
    atexit.unregister(_leave)
    atexit.register(_leave)
    backend: ProcessGroup = _backend.create(options)
    return backend


def _leave() -> None:
    """At exit: do not leave the other ranks waiting in groups that nobody destroyed."""
    import ddl
    from ddl import _exit

    from ddl_torch import _backend

    if not _exit.is_the_ranks() or _exit.failure() is not None:
        return  # after an uncaught exception ddl ends the job
    problem = _backend.leave_all(_LEAVE_TIMEOUT_S)
    if problem:
        ddl.abort(problem)


register()
