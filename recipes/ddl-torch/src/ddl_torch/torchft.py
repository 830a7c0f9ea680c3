"""ddl for torchft, so that a training goes on when replicas are lost, and when they come back.

    from ddl_torch.torchft import ProcessGroupDDL

    manager = torchft.Manager(pg=ProcessGroupDDL(timeout=timedelta(seconds=30)), ...)

It takes the place of torchft's ProcessGroupGloo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddl_torch.companion import CompanionGroup

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
else:
    from torchft.process_group import ProcessGroup

__all__ = ["ProcessGroupDDL"]


class ProcessGroupDDL(CompanionGroup, ProcessGroup):
    """torchft's ProcessGroup over DDL's collectives, for CPU tensors."""

    def getBackendName(self) -> str:
        """The name of this kind of group."""
        return "torchft-ddl"
