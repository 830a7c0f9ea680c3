"""ddl for torchft, so that a training goes on when replicas are lost, and when they come back.

    from ddl_torch.torchft import DistributedDataParallel, ProcessGroupDDL

    manager = torchft.Manager(pg=ProcessGroupDDL(timeout=timedelta(seconds=30)), ...)
    model = DistributedDataParallel(manager, model)

They take the place of torchft's ProcessGroupGloo and of its class of the same name.
"""

# No annotations from __future__: torch looks at those of a communication hook.
import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.distributed import GradBucket
from torch.futures import Future

from ddl_torch.companion import CompanionError, CompanionGroup
from ddl_torch.companion.group import CompanionWork

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.nn.parallel import DistributedDataParallel as TorchftParallel
else:
    from torchft.ddp import DistributedDataParallel as TorchftParallel
    from torchft.process_group import ProcessGroup

__all__ = ["DistributedDataParallel", "ProcessGroupDDL"]


class _Work(CompanionWork):
    """An operation whose failure is in its future alone, and in the group's `errored`.

    After a `wait` that raises, torchft 0.2 leaves its own future unset. Its DistributedDataParallel
    then ends the replica by an assertion.
    """

    def wait(self, timeout: timedelta | None = None) -> bool:
        with contextlib.suppress(CompanionError):
            return super().wait(timeout)
        return False


class ProcessGroupDDL(CompanionGroup, ProcessGroup):
    """torchft's ProcessGroup over DDL's collectives, for CPU tensors."""

    def getBackendName(self) -> str:
        """The name of this kind of group."""
        return "torchft-ddl"

    def _work(self, done: Future[Any]) -> CompanionWork:
        return _Work(done)


class DistributedDataParallel(TorchftParallel):
    """torchft's own, which outlives a failure in the middle of a step.

    When the allreduce of one bucket has failed, torchft 0.2 makes no other in this step. Its own
    hook does not know what it gets for the next bucket, and ends the replica.
    """

    @staticmethod
    def _comm_hook(state: Any, bucket: GradBucket) -> Future[Tensor]:
        buffer = bucket.buffer()
        state.allreduce(buffer).wait()
        done: Future[Tensor] = Future()
        done.set_result(buffer)
        return done
