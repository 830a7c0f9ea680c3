"""MPI's process management over torch's store, for ranks that torchrun has started.

MPI_Init asks whoever started a rank for the others' addresses, by the lines of PMI-1 on a socket
("PMI: A Scalable Parallel Process-Management Interface", Balaji et al., 2010; MPICH's simple PMI).
torchrun, accelerate and others speak no PMI, but give their ranks a store. A thread of each rank
answers its own MPI by that store. There is no listener: the socket is a pair inside the process.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ddl_torch._round import Round

_MAPPING = "PMI_process_mapping"


class Server:
    """Answers the MPI of one rank, by the keys of its round."""

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._barriers = 0
        self._process = os.getpid()
        self._ours, theirs = socket.socketpair()
        self._theirs = theirs.detach()  # MPI closes it

    def start(self, environ: dict[str, str] | os._Environ[str]) -> None:
        """Begin to answer, and tell MPI by its variables; those of another launcher go."""
        for name in [*environ]:
            if name.startswith(("PMI_", "PMIX_", "MPI_LOCAL")):
                del environ[name]
        environ["PMI_FD"] = str(self._theirs)
        environ["PMI_RANK"], environ["PMI_SIZE"] = str(self._round.rank), str(self._round.size)
        threading.Thread(target=self._serve, name="ddl-pmi", daemon=True).start()

    def stop(self) -> None:
        """Stop answering, as Python ends.

        MPICH takes leave in an exit function of C, after all threads of Python. So it finds the
        answer to that in its socket, and to anything else that nobody is there. The socket is this
        process's own: one that was forked from it does nothing.
        """
        if os.getpid() != self._process:
            return
        os.dup(self._ours.fileno())  # which stays open when Python has dropped its objects
        with contextlib.suppress(OSError):
            self._ours.sendall(b"cmd=finalize_ack rc=0\n")
            self._ours.shutdown(socket.SHUT_WR)

    def _serve(self) -> None:
        with self._ours.makefile("rw", newline="\n") as lines:
            for line in lines:
                words = dict(word.split("=", 1) for word in line.split() if "=" in word)
                try:
                    answer = self._answer(words)
                except Exception as error:  # the store's; the rank's MPI shall not wait forever
                    reason = " ".join(str(error).split())[:200]
                    sys.stderr.write(f"{reason}\n")
                    answer = f"cmd={words.get('cmd', '')}_result rc=-1 msg={reason}"
                try:
                    lines.write(answer + "\n")
                    lines.flush()
                except OSError:  # stopped
                    return

    def _answer(self, words: Mapping[str, str]) -> str:
        command = words["cmd"]
        if command == "abort":
            os._exit(int(words.get("exitcode", "1")) & 0xFF or 1)
        answers: dict[str, Callable[[], str]] = {
            "init": lambda: "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": lambda: "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0",
            "get_appnum": lambda: "cmd=appnum appnum=0 rc=0",
            "get_universe_size": lambda: f"cmd=universe_size size={self._round.size} rc=0",
            # MPICH names files of /dev/shm by it: no other job has it, nor can guess it.
            "get_my_kvsname": lambda: f"cmd=my_kvsname kvsname=ddl_{self._round.name} rc=0",
            "put": lambda: self._put(words["key"], words["value"]),
            "get": lambda: self._get(words["key"]),
            "barrier_in": self._barrier,
            "finalize": lambda: "cmd=finalize_ack rc=0",
        }
        unknown = f"cmd={command}_result rc=-1 msg=not_supported"
        return answers.get(command, lambda: unknown)()

    def _put(self, key: str, value: str) -> str:
        self._round.set(f"key {key}", value)
        return "cmd=put_result rc=0 msg=success"

    def _get(self, key: str) -> str:
        value = mapping(self._round.hosts) if key == _MAPPING else self._round.get(f"key {key}")
        if value is None:
            return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
        return f"cmd=get_result rc=0 msg=success value={value}"

    def _barrier(self) -> str:
        self._barriers += 1
        self._round.barrier(f"barrier {self._barriers}")
        return "cmd=barrier_out rc=0"


def mapping(hosts: Iterable[str]) -> str:
    """Which host each rank is on, as PMI_process_mapping has it: "(vector,(0,2,4),(2,1,3))".

    A block is the first host's number, then how many hosts it is of, then the ranks on each.
    """
    numbers: dict[str, int] = {}
    nodes = [numbers.setdefault(host, len(numbers)) for host in hosts]
    blocks: list[list[int]] = []
    for node, count in _runs(nodes):
        last = blocks[-1] if blocks else None
        if last and last[2] == count and last[0] + last[1] == node:
            last[1] += 1
        else:
            blocks.append([node, 1, count])
    return f"(vector,{','.join('({},{},{})'.format(*block) for block in blocks)})"


def _runs(nodes: list[int]) -> Iterator[tuple[int, int]]:
    for node, run in groupby(nodes):
        yield node, sum(1 for _ in run)


def is_there(environ: Mapping[str, Any]) -> bool:
    """Whether somebody answers this process's MPI already.

    A variable of PMI may be the parent's, which has started us without its socket.
    """
    if environ.get("PMI_PORT") or environ.get("PMIX_RANK"):
        return True
    try:
        number = int(environ["PMI_FD"])
        socket.socket(fileno=os.dup(number)).close()
    except (KeyError, ValueError, OSError):
        return False
    return True
