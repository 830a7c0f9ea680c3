"""A rank with a companion that does as it is told: `companion_rank.py STORE-ADDRESS SECONDS`.

Each line of its input is a word with its arguments, and each has one line for an answer.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from ddl_torch.companion import CompanionError, CompanionGroup


class Group(CompanionGroup, dist.ProcessGroup):
    pass


class Words:
    """A method for each word, by its name."""

    def __init__(self, address: str, seconds: float) -> None:
        self.address = address
        self.group = Group(timeout=timedelta(seconds=seconds))

    def meet(self, name: str, rank: str, size: str) -> str:
        self.group.configure(f"{self.address}/{name}", "", int(rank), int(size))
        return f"{self.group.size()} met"

    def add(self, value: str, count: str) -> str:
        """The sums of a few allreduces that are under way together, or "unequal"."""
        tensors = [torch.full((int(count),), float(value) + i) for i in range(3)]
        for work in [self.group.allreduce([tensor]) for tensor in tensors]:
            work.wait()
            assert work.is_completed()
            assert work.is_success()
        assert all(bool((tensor == tensor[0]).all()) for tensor in tensors), "unequal elements"
        return " ".join(f"{tensor[0]:g}" for tensor in tensors)

    def for_ever(self) -> str:
        while True:
            self.add("1", "100000")

    def chain(self) -> str:
        """An operation whose callback waits for another one, as a hook of DDP's does."""
        first, second = torch.ones(10), torch.full((10,), 2.0)

        def then(_done: object) -> float:
            self.group.allreduce([second]).wait()
            return float(second[0])

        return str(self.group.allreduce([first]).get_future().then(then).wait())

    def many(self, count: str) -> str:
        """The descriptors that so many tensors under way take and leave."""
        before = len([*Path("/proc/self/fd").iterdir()])
        self.group.allreduce_coalesced(
            [torch.ones(2000 * (i + 1)) for i in range(int(count))]
        ).wait()
        return str(len([*Path("/proc/self/fd").iterdir()]) - before)

    def starved(self) -> str:
        """An operation without a descriptor left for its memory."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            self.group.allreduce([torch.ones(12_345_678)]).wait()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        return "had one"

    def buffers(self) -> str:
        assert self.group._group
        return str(len(self.group._group._buffers._memory))

    def leave(self) -> str:
        """End the companion while a forked process lives on; that one's number."""
        child = os.fork()
        if not child:
            time.sleep(600)
            os._exit(0)
        self.group._companion.end()
        return str(child)

    def wrong(self) -> str:
        self.group.alltoall_base(torch.ones(3), torch.ones(3), [7], [3]).wait()
        return "was not refused"

    def failed(self) -> str:
        return str(self.group.errored())

    def companion(self) -> str:
        return str(self.group._companion._process.pid)

    def end(self) -> str:
        self.group.shutdown()
        return "ended"


def main() -> None:
    address, seconds = sys.argv[1:]
    words = Words(address, float(seconds))
    print("here", flush=True)
    for line in sys.stdin:
        word, *more = line.split()
        try:
            answer = getattr(words, word)(*more)
        except (CompanionError, ValueError) as error:
            answer = f"{type(error).__name__}: {error}"
        print(" ".join(answer.split()), flush=True)


if __name__ == "__main__":
    main()
