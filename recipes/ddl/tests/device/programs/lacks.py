"""What a machine lacks is said in words; where it has no GPU, host memory serves."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ddl
import numpy as np

ddl.init()
maps = Path("/proc/self/maps").read_text().splitlines()
library = ctypes.CDLL(next(line.split()[-1] for line in maps if "/libddl.so" in line))
library.ddl_last_error.restype = ctypes.c_char_p
x = np.ones(1000, np.float32)
if library.ddl_set_stream(None) != 0:
    print(library.ddl_last_error().decode(), flush=True)
    assert (ddl.allreduce(x) == ddl.size()).all()
else:
    from cuda import SUM, call, n, on_gpu, refusal

    gpu = on_gpu(x)
    print(refusal(lambda: call("allreduce", gpu, gpu, n(x.size), 0, SUM)), flush=True)
