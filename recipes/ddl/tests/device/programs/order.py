"""A collective comes after what its stream was given, and its result is there for all streams."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda import LIBDDL, RANK, SIZE, SUM, TO_DEVICE, Memory, call, cuda, expect, n, stream

COUNT = 1 << 16

ones = np.ones(COUNT, np.float32)
pinned = Memory(ones.nbytes, is_pinned=True)
ctypes.memmove(pinned, ones.ctypes.data, ones.nbytes)
wanted = np.full(COUNT, SIZE, np.float32)
other = 1 - RANK

for round_ in range(3):
    with stream() as mine:
        for is_async in (False, True):
            x = Memory(ones.nbytes)
            room = Memory(ones.nbytes)
            cuda("MemcpyAsync", x, pinned, n(ones.nbytes), TO_DEVICE, mine)
            if is_async:
                request = ctypes.c_void_p()
                call("iallreduce", x, room, n(COUNT), 0, SUM, ctypes.byref(request))
                assert LIBDDL.ddl_wait(ctypes.byref(request)) == 0, LIBDDL.ddl_last_error()
            else:
                call("allreduce", x, room, n(COUNT), 0, SUM)
            # Read in another stream than it was made in.
            expect(room, wanted, f"round {round_}, asynchronous: {is_async}")
        # A message is made by a copy in a stream.
        if SIZE == 2:
            x = Memory(ones.nbytes)
            cuda("MemcpyAsync", x, pinned, n(ones.nbytes), TO_DEVICE, mine)
            if RANK == 0:
                call("send", x, n(ones.nbytes), other, 1)
            else:
                call("recv", x, n(ones.nbytes), other, 1)
            expect(x, ones, f"round {round_}, a message")
