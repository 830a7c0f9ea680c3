"""Prints the addresses at which this rank listens since the library's start."""

from __future__ import annotations

import ctypes
import re
import socket
from pathlib import Path

import ddl
import numpy as np

LISTEN = "0A"  # the kernel's TCP_LISTEN


def listening() -> set[str]:
    links = []
    for number in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(number.readlink()))
        except FileNotFoundError:  # of this listing itself
            continue
    own = {match[1] for link in links if (match := re.match(r"socket:\[(\d+)\]", link))}
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {
        socket.inet_ntoa(bytes.fromhex(words[1][:8])[::-1])
        for words in lines
        if words[3] == LISTEN and words[9] in own
    }


before = listening()  # what the launcher has left open
ddl.init()
assert ddl.allreduce(np.ones(100_000))[0] == ddl.size()
ddl.alltoall(np.ones((ddl.size(), 1000)))
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
print("listens at", sorted(listening() - before), libc.getenv(b"UCX_TLS"), flush=True)
