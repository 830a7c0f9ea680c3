"""What a machine lacks is said in words; where it has no GPU, host memory serves."""

from __future__ import annotations

import ddl
import numpy as np
from libraries import LIBDDL

x = np.ones(1000, np.float32)
if LIBDDL.ddl_set_stream(None) != 0:
    print(LIBDDL.ddl_last_error().decode(), flush=True)
    assert (ddl.allreduce(x) == ddl.size()).all()
else:
    from cuda import SUM, call, n, on_gpu, refusal

    gpu = on_gpu(x)
    print(refusal(lambda: call("allreduce", gpu, gpu, n(x.size), 0, SUM)), flush=True)
