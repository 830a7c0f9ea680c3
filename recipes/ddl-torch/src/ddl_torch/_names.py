"""Programs that name another backend, or none, and get ddl.

`DDL_INSTEAD_OF=gloo,nccl`, which `ddlrun -instead_of gloo,nccl` sets, gives ddl to a program that
asks for Gloo or NCCL. Only the table from devices to backends changes: torch keeps the name that
the program gave, and `get_backend()` answers with it. In a job of ddlrun, a group without a name
is ddl's in any case.
"""

from __future__ import annotations

import functools
import os
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed import ProcessGroup

NAME = "ddl"
VARIABLE = "DDL_INSTEAD_OF"
REPLACEABLE = ("gloo", "nccl")
_NCCL_TIMEOUT = timedelta(minutes=10)  # torch's, where it has NCCL


def replaced() -> list[str]:
    """Return the names that stand for ddl.

    Raises:
        ValueError: DDL_INSTEAD_OF has another name.
    """
    for name in _asked():
        if name not in REPLACEABLE:
            raise ValueError(
                f"{VARIABLE}={os.environ[VARIABLE]}: ddl cannot stand in for '{name}'; "
                f"write {' or '.join(REPLACEABLE)}, or both with a comma"
            )
    return _asked()


def _asked() -> list[str]:
    return os.environ.get(VARIABLE, "").lower().replace(",", " ").split()


def is_asked_for(backend: str | None) -> bool:
    """Whether a group of this name is ddl's."""
    if backend in (None, "undefined"):
        return _is_default()
    words = backend.lower().replace(",", ":").split(":")
    return any(name in words for name in (NAME, *replaced()))


def is_ours(group: ProcessGroup | None) -> bool:
    """Whether this group, of which we are a member, is ddl's, whatever its name."""
    from torch.distributed import distributed_c10d

    return NAME in distributed_c10d.get_backend_config(group).replace(",", ":").split(":")


def take() -> None:
    """Let torch give ddl to those who ask for it so; once for the process."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    _take_tables(dist.BackendConfig)
    replace_function("_new_process_group_helper", _with_our_default)
    if _is_default():
        defaults = dist.Backend.default_device_backend_map
        # A program that will hear the name of a replaced backend may as well ask for that.
        for device in dist.Backend.backend_capability[NAME]:
            if defaults.get(device) not in _asked():
                defaults[device] = NAME
    if "nccl" in _asked():
        # In torch.distributed alone: without NCCL, torch's own code has no class to ask for.
        dist.is_nccl_available = lambda: True
        if c10d.default_pg_nccl_timeout is None:
            c10d.default_pg_nccl_timeout = _NCCL_TIMEOUT
    if "gloo" in _asked():
        dist.is_gloo_available = lambda: True


def _is_default() -> bool:
    """Whether ddl serves groups without a name: a launcher has asked for it."""
    return "DDLRUN_WRAPPER" in os.environ or bool(_asked())


def _take_tables(config: Any) -> None:
    """Let a replaced name lead to ddl, for all of ddl's devices.

    NCCL's table has no CPU; but who runs such a program without a GPU has its tensors there.
    """
    torchs = config.__init__

    @functools.wraps(torchs)
    def init(self: Any, backend: Any) -> None:
        import torch.distributed as dist

        torchs(self, backend)
        table, names = self.device_backend_map, replaced()
        if not any(value in names for value in table.values()):
            return
        if ":" not in str(backend):
            table |= dict.fromkeys(dist.Backend.backend_capability[NAME], NAME)
        for device, value in table.items():
            if value in names:
                table[device] = dist.Backend(NAME)

    config.__init__ = init


def _with_our_default(torchs: Callable[..., Any]) -> Callable[..., Any]:
    """Torch's `_new_process_group_helper`, for groups without a name and with a replaced one."""

    def helper(
        size: int, rank: int, ranks: list[int], backend: Any, *args: Any, **kwargs: Any
    ) -> Any:
        import torch.distributed as dist

        if backend == dist.Backend.UNDEFINED and _is_default():
            backend = dist.Backend(NAME)
        group, store = torchs(size, rank, ranks, backend, *args, **kwargs)
        if isinstance(group, dist.ProcessGroup) and is_ours(group):
            group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)  # not of the name
            if not ranks and group.rank() == 0 and dist.Backend(backend) != NAME and replaced():
                sys.stderr.write(f"[ddl] serves as backend {backend} ({VARIABLE})\n")
        return group, store

    return helper


def replace_function(name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function of torch.distributed in all of its modules that have it."""
    from torch.distributed import distributed_c10d

    torchs = getattr(distributed_c10d, name)
    ours = functools.wraps(torchs)(wrap(torchs))
    for module_name, module in [*sys.modules.items()]:
        if module_name.partition(".")[0] == "torch" and vars(module).get(name) is torchs:
            setattr(module, name, ours)
