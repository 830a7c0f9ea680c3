"""A rank's group in a process of its own, which may be lost and made again.

MPI cannot lose a rank: MPICH 5 has no way to leave one out, and over TCP it crashes when a peer is
killed. So the rank keeps its model, and a companion process communicates for it. When ranks are
lost or come, the companions are ended, and new ones start an MPI of the ranks that are there.

`client.py` is the rank's side, `process.py` the companion's, `messages.py` the words between them,
and `buffers.py` their shared memory. `group.py` has torch's operations on it.
"""

from ddl_torch.companion.client import CompanionError
from ddl_torch.companion.group import CompanionGroup

__all__ = ["CompanionError", "CompanionGroup"]
