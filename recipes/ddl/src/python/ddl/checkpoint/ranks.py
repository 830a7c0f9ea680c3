"""The ranks of the job, by the library through which the program's ranks already talk."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import numpy as np

from ddl._timeouts import ALONE_TIMEOUT_S
from ddl.checkpoint.errors import CheckpointError

T = TypeVar("T")


class Ranks(Protocol):
    """What a checkpoint needs of the ranks. All ranks make each call, in the same order."""

    rank: int
    size: int

    def any(self, flag: bool) -> bool:
        """Whether the flag of any rank is set: an allreduce of 4 bytes."""
        ...

    def texts(self, text: str) -> list[str]:
        """The text of each rank."""
        ...

    def sum(self, values: Any) -> Any:
        """The sum over the ranks of a 1-D array of floating point numbers."""
        ...

    def close(self) -> None:
        """Give back what was made for these calls."""
        ...


class Alone:
    """A program of one process."""

    rank, size = 0, 1

    def any(self, flag: bool) -> bool:
        """The flag itself."""
        return flag

    def texts(self, text: str) -> list[str]:
        """The text itself."""
        return [text]

    def sum(self, values: Any) -> Any:
        """The values themselves."""
        return values

    def close(self) -> None:
        """Do nothing."""


class DdlRanks:
    """Ranks that talk by ddl itself."""

    def __init__(self) -> None:
        import ddl

        self._ddl = ddl
        self.rank, self.size = ddl.rank(), ddl.size()

    def any(self, flag: bool) -> bool:
        """Whether the flag of any rank is set."""
        return bool(self._ddl.allreduce(np.array([flag], np.int32), "max")[0])

    def texts(self, text: str) -> list[str]:
        """The text of each rank."""
        data = np.frombuffer(text.encode(), np.uint8)
        length = int(self._ddl.allreduce(np.array([len(data)], np.int64), "max")[0])
        padded = np.zeros(length + 1, np.uint8)
        padded[: len(data)] = data
        return [bytes(row).rstrip(b"\0").decode() for row in self._ddl.allgather(padded)]

    def sum(self, values: Any) -> Any:
        """The sum over the ranks."""
        return self._ddl.allreduce(values)

    def close(self) -> None:
        """Do nothing."""


class TorchRanks:
    """Ranks that talk by torch.distributed, with any backend.

    Attributes:
        group: of all ranks, for waiting on one that saves: each group has a timeout of its own.
    """

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        # By the devices, not by the name: ddl may stand in for nccl without a GPU.
        has_cpu = torch.device("cpu") in dist.group.WORLD._device_types
        self._device = "cpu" if has_cpu else "cuda"
        self.group = dist.new_group(timeout=timedelta(seconds=ALONE_TIMEOUT_S))

    def any(self, flag: bool) -> bool:
        """Whether the flag of any rank is set."""
        told = self._torch.tensor([flag], dtype=self._torch.int32, device=self._device)
        self._dist.all_reduce(told, self._dist.ReduceOp.MAX)
        return bool(told.item())

    def texts(self, text: str) -> list[str]:
        """The text of each rank."""
        torch = self._torch
        data = torch.tensor(list(text.encode()), dtype=torch.uint8)
        length = torch.tensor([len(data)], dtype=torch.int64, device=self._device)
        self._dist.all_reduce(length, self._dist.ReduceOp.MAX, group=self.group)
        padded = torch.zeros(int(length.item()) + 1, dtype=torch.uint8, device=self._device)
        padded[: len(data)] = data
        rows = [torch.empty_like(padded) for _ in range(self.size)]
        self._dist.all_gather(rows, padded, group=self.group)
        return [bytes(row.tolist()).rstrip(b"\0").decode() for row in rows]

    def sum(self, values: Any) -> Any:
        """The sum over the ranks."""
        is_tensor = isinstance(values, self._torch.Tensor)
        total = values.clone() if is_tensor else self._torch.from_numpy(values.copy())
        device = total.device
        total = total.to(self._device) if self._device != "cpu" else total
        self._dist.all_reduce(total)
        return total.to(device) if is_tensor else total.cpu().numpy()

    def close(self) -> None:
        """Destroy the group, unless the program has destroyed all."""
        if self._dist.is_initialized():
            self._dist.destroy_process_group(self.group)


class HorovodRanks:
    """Ranks that talk by Horovod: `module` is horovod.torch or horovod.tensorflow."""

    def __init__(self, module: Any) -> None:
        self._hvd = module
        self.rank, self.size = module.rank(), module.size()

    def any(self, flag: bool) -> bool:
        """Whether the flag of any rank is set."""
        return bool(np.max(self._reduce(np.array([flag], np.int32), "any")))

    def texts(self, text: str) -> list[str]:
        """The text of each rank."""
        return list(self._hvd.allgather_object(text, name="ddl.checkpoint.texts"))

    def sum(self, values: Any) -> Any:
        """The sum over the ranks."""
        return self._reduce(values, "sum")

    def _reduce(self, values: Any, name: str) -> Any:
        is_array = isinstance(values, np.ndarray)
        if is_array and self._hvd.__name__ == "horovod.torch":
            import torch

            values = torch.from_numpy(values)
        total = self._hvd.allreduce(values, name=f"ddl.checkpoint.{name}", op=self._hvd.Sum)
        return np.asarray(total) if is_array else total

    def close(self) -> None:
        """Do nothing."""


def find_ranks() -> Ranks:
    """The ranks, by whichever of torch.distributed, Horovod and ddl the program has started.

    Raises:
        CheckpointError: a launcher has started several ranks, and none of these is started.
    """
    torch = sys.modules.get("torch.distributed")
    if torch and torch.is_available() and torch.is_initialized():
        return TorchRanks()
    for name in ("horovod.torch", "horovod.tensorflow"):
        module = sys.modules.get(name)
        if module and module.is_initialized():
            return HorovodRanks(module)
    core = sys.modules.get("ddl._core")
    if "DDL_OPTIONS" in os.environ or (core and core.initialized()):
        return DdlRanks()
    size = os.environ.get("WORLD_SIZE", "1")
    if size not in ("", "1"):
        raise CheckpointError(
            f"the job has {size} ranks (WORLD_SIZE), which cannot agree yet; first call "
            "init_process_group, hvd.init or ddl.init"
        )
    return Alone()


def collect(ranks: Ranks, work: Callable[[], T]) -> list[T]:
    """Do some work on every rank; its results, in the order of the ranks.

    Args:
        work: without collectives of its own; returns what JSON can hold.

    Raises:
        CheckpointError: it failed on a rank; raised on all, and names these ranks. An error that
            is neither ours nor the system's is raised as it is where it happened.
    """
    own: BaseException | None = None
    try:
        try:
            told = json.dumps({"value": work()})
        except BaseException as error:  # the others must not wait for what will never come
            own, told = error, json.dumps({"trouble": words_of(error)})
        with patient():
            answers = [json.loads(text) for text in ranks.texts(told)]
        if own is not None and not isinstance(own, CheckpointError | OSError):
            raise own
    finally:
        own = None  # else its traceback, which has this frame, would keep all of its objects
    _raise_troubles({n: it["trouble"] for n, it in enumerate(answers) if "trouble" in it})
    return [answer["value"] for answer in answers]


def _raise_troubles(troubles: dict[int, str]) -> None:
    if len(set(troubles.values())) == 1:
        raise CheckpointError(next(iter(troubles.values())))
    if troubles:
        raise CheckpointError("; ".join(f"rank {n}: {text}" for n, text in troubles.items()))


def words_of(error: BaseException) -> str:
    """An error in one line; of the system's, the file and the reason."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}"
    if isinstance(error, CheckpointError | OSError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """Let ddl's ranks wait longer than its timeout: one may save for many minutes."""
    core = sys.modules.get("ddl._core")
    if core is None or not core.initialized():
        yield
        return
    before = core.get_timeout()
    core.set_timeout(max(before, ALONE_TIMEOUT_S))
    try:
        yield
    finally:
        core.set_timeout(before)
