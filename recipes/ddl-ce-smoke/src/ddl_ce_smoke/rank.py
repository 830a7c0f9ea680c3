"""One rank of a job: who it is, the journal it keeps, and its process group.

The journal is how the suite sees into a job: each rank appends JSON lines to its own file, so
what it did last is known even if it died or hangs, without any help from the code under test.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Rank:
    """This process among the ranks of its job, as ddlrun set it in the environment."""

    index: int
    size: int
    local_index: int
    host: str

    @classmethod
    def from_environment(cls) -> Rank:
        """Reads RANK, WORLD_SIZE and LOCAL_RANK; without a launcher: rank 0 of 1."""
        env = os.environ
        return cls(
            int(env.get("RANK", "0")),
            int(env.get("WORLD_SIZE", "1")),
            int(env.get("LOCAL_RANK", "0")),
            socket.gethostname(),
        )


class Journal:
    """Appends events of one rank to `folder`/rank-N.jsonl; does nothing without a folder."""

    def __init__(self, folder: Path | None, rank: Rank) -> None:
        try:
            self._file = (folder / f"rank-{rank.index}.jsonl").open("a") if folder else None
        except OSError as error:
            sys.exit(
                f"error: {rank.host} cannot write into {folder}: {error.strerror}; the suite needs "
                "a folder that all hosts have: give it by --shared, or start the suite in one"
            )
        self.write("begin", rank=rank.index, size=rank.size, host=rank.host, pid=os.getpid())

    def write(self, event: str, **fields: Any) -> None:
        """One line: the event, its fields and the time."""
        if self._file:
            self._file.write(json.dumps({"event": event, "time": time.time(), **fields}) + "\n")
            self._file.flush()


@contextlib.contextmanager
def journal(folder: Path | None, rank: Rank) -> Iterator[Journal]:
    """A journal that ends with `end`, or with `error` and the traceback."""
    record = Journal(folder, rank)
    try:
        yield record
    except Exception as error:
        record.write("error", message=f"{type(error).__name__}: {error}", trace=_trace(error))
        raise
    record.write("end")


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


@dataclass(frozen=True)
class Session:
    """A rank with its process group and the store beside it.

    Attributes:
        store: messages of the ranks to each other beside the backend under test.
        timeout: of every wait.
    """

    rank: Rank
    backend: str
    store: TCPStore
    timeout: timedelta
    device: torch.device

    def group(self, count: int, backend: str | None = None) -> dist.ProcessGroup:
        """The group of ranks 0..count-1; called by all ranks of the job, in the same order."""
        group: dist.ProcessGroup = dist.new_group(
            list(range(count)), timeout=self.timeout, backend=backend or self.backend
        )
        return group

    def finish(self, work: str, group: dist.ProcessGroup, count: int) -> None:
        """Called by all ranks: returns when `group`, ranks 0..count-1, has come to this point.

        The ranks outside sleep until then, however long: a failure in the group ends the whole
        job. `work` names the work, once in a job.
        """
        if self.rank.index < count:
            dist.barrier(group)
        if self.rank.index == 0:
            self.store.set(work, "done")
        self.store.wait([work], timedelta(days=1))

    def oversubscribed(self, count: int) -> bool:
        """Whether some host has more of the ranks 0..count-1 than CPU cores for this job."""
        ranks: dict[str, int] = {}
        cpus: dict[str, set[int]] = {}
        for index in range(self.rank.size):
            binding = json.loads(self.store.get(f"binding of {index}"))
            ranks[binding["host"]] = ranks.get(binding["host"], 0) + (index < count)
            cpus.setdefault(binding["host"], set()).update(binding["cpus"])
        return any(number > len(cpus[host]) for host, number in ranks.items())

    def shares_gpus(self, count: int) -> bool:
        """Whether some of the ranks 0..count-1 have the same GPU. NCCL refuses those."""
        gpus = [self.store.get(f"GPU of {index}") for index in range(count)]
        return len(set(gpus)) < count


@contextlib.contextmanager
def session(backend: str | None, timeout_seconds: float) -> Iterator[Session]:
    """Starts torch.distributed on `backend` among the ranks of this job; ends it on leaving.

    Without a backend there is the store alone.
    One thread per rank, so that ranks do not take each other's cores.
    """
    torch.set_num_threads(1)
    rank = Rank.from_environment()
    timeout = timedelta(seconds=timeout_seconds)
    store = TCPStore(
        os.environ.get("MASTER_ADDR", "127.0.0.1"),
        int(os.environ.get("MASTER_PORT", "0")),
        rank.size,
        is_master=rank.index == 0,
        timeout=timeout,
        use_libuv=False,  # not every build of torch has it
    )
    binding = {"host": rank.host, "cpus": sorted(os.sched_getaffinity(0))}
    store.set(f"binding of {rank.index}", json.dumps(binding))
    if backend is None:
        yield Session(rank, "", store, timeout, torch.device("cpu"))
    else:
        dist.init_process_group(
            backend, store=store, rank=rank.index, world_size=rank.size, timeout=timeout
        )
        device = device_of(rank, backend_has_cuda(backend))
        on_gpu = device.type == "cuda"
        gpu = torch.cuda.get_device_properties(device).uuid if on_gpu else f"none, {rank.index}"
        store.set(f"GPU of {rank.index}", str(gpu))
        yield Session(rank, backend, store, timeout, device)
        # This is in no `finally`: after a failure the others are not there to take part in the end.
        dist.destroy_process_group()
    # The store lives in rank 0, which stays until nobody needs it.
    store.set(f"rank {rank.index} leaves", "")
    if rank.index == 0:
        store.wait([f"rank {index} leaves" for index in range(rank.size)], timeout)


def backend_has_cuda(backend: str) -> bool:
    """Whether a backend of torch.distributed takes tensors on GPUs."""
    return "cuda" in dist.Backend.backend_capability.get(backend, ())


def device_of(rank: Rank, has_cuda: bool) -> torch.device:
    """The rank's GPU, from now on the current one; the CPU without a GPU or without `has_cuda`."""
    if not (has_cuda and torch.cuda.is_available()):
        return torch.device("cpu")
    device = torch.device("cuda", rank.local_index % torch.cuda.device_count())
    torch.cuda.set_device(device)
    # Gradients are compared, and convolutions of other sizes would round to other TensorFloat-32.
    torch.backends.cudnn.allow_tf32 = False
    return device


def settle(device: torch.device) -> None:
    """Waits for the work started on a GPU, so that a clock read next is right."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
