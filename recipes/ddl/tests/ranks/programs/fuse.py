"""How many messages a burst of allreduces takes. Prints it as `messages N of M`."""

from __future__ import annotations

import ddl
import numpy as np

NUMBER = 60
ddl.init()
before = ddl.stats()
assert before == (0, 0, 0, 0), before
handles = [ddl.allreduce_async(np.full(i, ddl.rank(), np.int32)) for i in range(NUMBER)]
for i, handle in enumerate(handles):
    expected = np.full(i, ddl.size() * (ddl.size() - 1) // 2, np.int32)
    np.testing.assert_array_equal(handle.wait(), expected)
after = ddl.stats()
assert after.requests == NUMBER
unfused = NUMBER - after.fused_requests
assert after.collectives == unfused + after.fused_messages
assert 2 * after.fused_messages <= after.fused_requests
if ddl.rank() == 0:
    print("messages", after.collectives, "of", NUMBER)
