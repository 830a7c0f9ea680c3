"""How the ranks of one attempt find each other in a store that earlier attempts have used.

torchrun keeps its store when it starts the ranks again, and a store in a file stays there. So a key
that a rank finds may be an earlier attempt's, or one of a process that has not been ended yet. Only
a word that nobody else can know says that the other end lives: each rank makes one, rank 0 answers
it with the name of the round, and all keys after that have this name in front.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    class Store(Protocol):
        """A store of torch.distributed."""

        def set(self, key: str, value: str) -> None: ...
        def get(self, key: str) -> bytes: ...
        def add(self, key: str, amount: int) -> int: ...
        def check(self, keys: list[str]) -> bool: ...


_POLLS = (0.001, 0.05)  # seconds between two looks at the store: the first, and the most
_GRACE = 2.0  # seconds for the others to say that they live, when a start takes too long


class Round:
    """The ranks of one attempt, their hosts, and keys that are theirs alone.

    No call waits inside the store: it serves one thread at a time, and `watch` needs it, too.

    Args:
        store: shared by all ranks; what earlier attempts have left there does no harm.
        rank, size: of this process among all.
        host: the name of its host; ranks with equal ones may share memory.
        seconds: how long this and every later wait may last.

    Attributes:
        rank, size: the same.
        name: a word that no other attempt has, nor can guess.
        hosts: the name of each rank's host.

    Raises:
        DistBackendError: some ranks, which it names, did not come in time.
    """

    def __init__(self, store: Store, rank: int, size: int, host: str, seconds: float) -> None:
        self._store, self.rank, self.size, self._seconds = store, rank, size, seconds
        self.name = secrets.token_hex(16)
        self.hosts = [host]
        if size > 1:
            self.hosts = self._gather(host) if rank == 0 else self._join(host)

    def _gather(self, host: str) -> list[str]:
        """Tell every rank the round's name, until each has answered under it: their hosts."""
        hosts = {0: host}
        answered: set[bytes] = set()

        def are_there() -> bool:
            for other in range(1, self.size):
                if other not in hosts:
                    self._invite(other, answered)
                    if (said := self.get(f"here {other}")) is not None:
                        hosts[other] = said
            return len(hosts) == self.size

        self._wait(are_there, lambda: [r for r in range(self.size) if r not in hosts])
        self.set("all", json.dumps([hosts[other] for other in range(self.size)]))
        return [hosts[other] for other in range(self.size)]

    def _invite(self, other: int, answered: set[bytes]) -> None:
        """Answer a rank's word if it is new: the first that we see may be an earlier attempt's."""
        if self._store.check([f"come {other}"]):
            word = self._store.get(f"come {other}")
            if word not in answered:
                answered.add(word)
                self._store.set(f"round of {word.decode()}", self.name)

    def _join(self, host: str) -> list[str]:
        """Come to the round that rank 0 names: the ranks' hosts.

        A rank 0 that is about to be ended may answer first; then the next one's answer replaces it.
        """
        word, self.name = self.name, ""
        self._store.set(f"come {self.rank}", word)

        def is_complete() -> bool:
            if not self._store.check([f"round of {word}"]):
                return False
            name = self._store.get(f"round of {word}").decode()
            if name != self.name:
                self.name = name
                self.set(f"here {self.rank}", host)
            return self.get("all") is not None

        self._wait(is_complete, lambda: self._absent("here") if self.name else [0])
        hosts: list[str] = json.loads(self.get("all") or "")
        return hosts

    def _absent(self, word: str) -> list[int]:
        """The ranks from 1 that have not set this key; rank 0 if they all have."""
        return [r for r in range(1, self.size) if self.get(f"{word} {r}") is None] or [0]

    def set(self, key: str, value: str) -> None:
        """Set a key of this round."""
        self._store.set(f"{self.name}/{key}", value)

    def get(self, key: str) -> str | None:
        """Return the value of a key of this round, or None."""
        key = f"{self.name}/{key}"
        return self._store.get(key).decode() if self._store.check([key]) else None

    def _wait(
        self, is_done: Callable[[], bool], missing: Callable[[], Iterable[int]], more: float = 0
    ) -> None:
        """Wait until it is done, or say which ranks are missing."""
        if not _poll(is_done, self._seconds + more):
            from torch.distributed import DistBackendError

            raise DistBackendError(
                f"backend ddl: rank {self.rank} has timed out after {self._seconds:g} s: "
                f"{_ranks(missing())} did not come"
            )

    def barrier(self, name: str) -> None:
        """Wait until all ranks have come to the barrier of that name.

        Raises:
            DistBackendError: some ranks, which it names, did not come in time. Where `watch` looks,
                it is the first to say so.
        """
        self.set(f"{name} {self.rank}", "")
        if self._store.add(f"{self.name}/{name}", 1) == self.size:
            self.set(f"{name} is over", "")
        self._wait(
            lambda: self.get(f"{name} is over") is not None,
            lambda: [r for r in range(self.size) if self.get(f"{name} {r}") is None],
            more=2 * _GRACE,
        )

    @contextmanager
    def watch(self, what: str) -> Iterator[None]:
        """End this process when the block takes too long, with a line that names lost ranks.

        For calls that cannot be interrupted, such as MPI_Init, which waits for a lost rank forever.
        """
        over = threading.Event()

        def look() -> None:
            if over.wait(self._seconds):
                return
            try:
                self.set(f"lives {self.rank}", "")
                over.wait(_GRACE)
                lost = [r for r in range(self.size) if self.get(f"lives {r}") is None]
            except RuntimeError:  # the store is gone, and who keeps it
                lost = [0]
            if over.is_set():
                return
            why = f"{_ranks(lost)} ended or hangs" if lost else "the ranks cannot reach each other"
            sys.stderr.write(
                f"backend ddl: {what} of rank {self.rank} has not ended within "
                f"{self._seconds:g} s: {why}\n"
            )
            sys.stderr.flush()
            os._exit(1)

        threading.Thread(target=look, name="ddl-watch", daemon=True).start()
        try:
            yield
        finally:
            over.set()
            self.set(f"lives {self.rank}", "")  # for those that still wait


def _poll(is_done: Callable[[], bool], seconds: float) -> bool:
    """Wait for that long at most; whether it is done."""
    from ddl.launch.awake import now  # where torch alone is imported, ddl is not

    pause, most = _POLLS
    deadline = now() + seconds
    while not is_done():
        if now() > deadline:
            return False
        time.sleep(pause)
        pause = min(1.5 * pause, most)
    return True


def _ranks(ranks: Iterable[int]) -> str:
    numbers = [str(rank) for rank in ranks]
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
