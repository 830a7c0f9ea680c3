"""Ranks with companions that are killed, stopped and started at random.

    python companion_storm.py EVENTS SEED

After each event the ranks that are there meet anew, and add numbers that name them. It ends with
lines of counts, or raises at the first hang, wrong sum or leak.
"""

from __future__ import annotations

import collections
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch.distributed as dist
from companions import HOSTS, Rank, ask_all, descendants, is_alive, shared_files, wait_until

TIMEOUT = 60.0  # seconds for ranks to meet, and for an operation: how long a stop takes
FEWEST, MOST = 2, 5
#: How often each comes, among 100.
EVENTS = {"kill a rank": 25, "a rank joins": 30, "kill a member": 30, "kill a companion": 9}
EVENTS["stop a rank"] = 6


class Storm:
    """Ranks, and what befalls them."""

    def __init__(self, seed: int, environment: dict[str, str]) -> None:
        self._random = random.Random(seed)
        self._environment = environment
        self._server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        self._started: list[Rank] = []
        self._here: list[Rank] = []
        self._groups = 0
        self._children: set[int] = set()
        self._files: set[Path] = set()  # of /dev/shm
        self.counts: collections.Counter[str] = collections.Counter()
        self.ranks = [self._start() for _ in range(3)]
        self._spare = self._start()

    def _start(self) -> Rank:
        address = f"localhost:{self._server.port}"
        self._started.append(Rank(address, TIMEOUT, self._environment))
        return self._started[-1]

    def meet(self) -> None:
        """Make a group of the ranks that are there, and add their numbers."""
        for rank in self.ranks:
            if rank not in self._here:
                assert rank.hear() == "here"
                self._here.append(rank)
        size = len(self.ranks)
        for _ in range(3):  # a busy machine may take longer than the timeout
            self._groups += 1
            answers = ask_all(self.ranks, f"meet group{self._groups} # %")
            if answers == [f"{size} met"] * size:
                break
            self.counts["meetings again"] += 1
        else:
            raise AssertionError(f"the ranks do not meet: {answers}")
        total = size * (size - 1) // 2
        sums = f"{total} {total + size} {total + 2 * size}"
        assert ask_all(self.ranks, "add # 100000") == [sums] * size
        for rank in self.ranks:
            children = descendants(rank.process.pid)
            self._children.update(children)
            self._files |= shared_files(children)

    def befall(self) -> None:
        """One event, whatever it is."""
        [event] = self._random.choices([*EVENTS], [*EVENTS.values()])
        if event == "a rank joins" and len(self.ranks) == MOST:
            event = "kill a rank"
        elif event == "kill a rank" and len(self.ranks) == FEWEST:
            event = "a rank joins"
        self.counts[event] += 1
        if event == "a rank joins":
            self.ranks.append(self._spare)
            self._spare = self._start()
            return
        victim = self._random.choice(self.ranks)
        companion = int(victim.ask("companion"))
        for rank in self.ranks:
            rank.tell("for_ever")
        time.sleep(self._random.uniform(0, 0.3))
        began = time.monotonic()
        if event == "stop a rank":
            os.kill(victim.process.pid, signal.SIGSTOP)
            self._others_notice(victim)
            os.kill(victim.process.pid, signal.SIGCONT)
            assert "Error: " in victim.hear()
        elif event == "kill a rank":
            victim.process.kill()
            victim.process.wait()
            self.ranks.remove(victim)
            self._others_notice(victim)
        else:
            members = descendants(companion)
            one = members[0] if event == "kill a member" and members else companion
            os.kill(one, signal.SIGKILL)
            self._others_notice(victim)
            assert victim.hear().startswith("CompanionError: ")
        print(f"{event}: noticed after {time.monotonic() - began:.1f} s", flush=True)

    def _others_notice(self, victim: Rank) -> None:
        for rank in self.ranks:
            if rank is not victim:
                assert rank.hear().startswith("CompanionError: ")

    def end(self) -> None:
        """End all ranks; nothing of them is left."""
        assert ask_all(self.ranks, "end") == ["ended"] * len(self.ranks)
        for rank in self._started:
            self._children.update(descendants(rank.process.pid))
        self.kill()
        wait_until(lambda: not any(is_alive(one) for one in self._children))
        # A process that a first member has begun removes them when the others are gone.
        wait_until(lambda: not any(one.exists() for one in self._files))

    def kill(self) -> None:
        """End all ranks at once."""
        while self._started:
            process = self._started.pop().process
            process.kill()
            process.communicate()


def main() -> None:
    """Half of the events on one host, half between hosts."""
    events, seed = int(sys.argv[1]), int(sys.argv[2])
    for environment in ({}, HOSTS):
        storm = Storm(seed, environment)
        try:
            storm.meet()
            for _ in range(events // 2):
                storm.befall()
                storm.meet()
            storm.end()
        finally:
            storm.kill()
        print("between hosts" if environment else "on one host", dict(storm.counts), flush=True)


if __name__ == "__main__":
    main()
