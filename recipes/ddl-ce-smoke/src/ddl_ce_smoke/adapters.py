"""One interface for the collectives of ddl, and of each framework that stands on it.

Its tensors are PyTorch's. They share their memory with NumPy's arrays, and are converted for
TensorFlow, which takes its own: bfloat16 goes through its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist

from ddl_ce_smoke.rank import backend_has_cuda

#: These have PyTorch 2.13's names, or those of before.
_allgather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class Collectives(Protocol):
    """The collectives under test. All tensors are one-dimensional.

    Attributes:
        name: of the cases.
        has_cuda: whether they take tensors on GPUs too.
    """

    name: str
    has_cuda: bool = False

    def allreduce(self, tensor: torch.Tensor, op: str) -> torch.Tensor:
        """The reduction of all ranks' tensors."""

    def broadcast(self, tensor: torch.Tensor, root: int) -> torch.Tensor:
        """The tensor of rank `root`."""

    def allgather(self, tensor: torch.Tensor) -> torch.Tensor:
        """All ranks' tensors, one after the other."""

    def reduce_scatter(self, tensor: torch.Tensor, op: str) -> torch.Tensor:
        """This rank's block of the reduction."""

    def barrier(self) -> None:
        """Waits for all ranks."""

    def unsupported(self, dtype: str, op: str) -> bool:
        """Whether a reduction is documented as refused."""

    def scatters(self, op: str) -> bool:
        """Whether there is a reduce-scatter with this operation."""
        return True


class DdlAdapter(Collectives):
    """`import ddl`."""

    name = "ddl"

    def __init__(self) -> None:
        import ddl
        from ddl.info import describe

        ddl.init()
        self.ddl: Any = ddl
        self.has_cuda = describe()["cuda"] is not None

    def allreduce(self, tensor: torch.Tensor, op: str) -> torch.Tensor:  # noqa: D102
        return torch.as_tensor(self.ddl.allreduce(tensor, op=op))

    def broadcast(self, tensor: torch.Tensor, root: int) -> torch.Tensor:  # noqa: D102
        return torch.as_tensor(self.ddl.broadcast(tensor.clone(), root=root))

    def allgather(self, tensor: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return torch.as_tensor(self.ddl.allgather(tensor)).flatten()

    def reduce_scatter(self, tensor: torch.Tensor, op: str) -> torch.Tensor:  # noqa: D102
        return torch.as_tensor(self.ddl.reduce_scatter(tensor, op=op))

    def barrier(self) -> None:  # noqa: D102
        self.ddl.barrier()

    def unsupported(self, dtype: str, op: str) -> bool:
        """Averages of integers."""
        return op == "average" and dtype.startswith("int")


class TorchAdapter(Collectives):
    """torch.distributed on its current process group."""

    OPS = {  # noqa: RUF012
        "sum": dist.ReduceOp.SUM,
        "prod": dist.ReduceOp.PRODUCT,
        "min": dist.ReduceOp.MIN,
        "max": dist.ReduceOp.MAX,
        "average": dist.ReduceOp.AVG,
    }

    def __init__(self, backend: str) -> None:
        self.name = f"torch:{backend}"
        self.has_cuda = backend_has_cuda(backend)

    def allreduce(self, tensor: torch.Tensor, op: str) -> torch.Tensor:  # noqa: D102
        result = tensor.clone()
        dist.all_reduce(result, self.OPS[op])
        return result

    def broadcast(self, tensor: torch.Tensor, root: int) -> torch.Tensor:  # noqa: D102
        result = tensor.clone()
        dist.broadcast(result, root)
        return result

    def allgather(self, tensor: torch.Tensor) -> torch.Tensor:  # noqa: D102
        result = tensor.new_empty(len(tensor) * dist.get_world_size())
        _allgather(result, tensor)
        return result

    def reduce_scatter(self, tensor: torch.Tensor, op: str) -> torch.Tensor:  # noqa: D102
        result = tensor.new_empty(len(tensor) // dist.get_world_size())
        _reduce_scatter(result, tensor, self.OPS[op])
        return result

    def barrier(self) -> None:  # noqa: D102
        dist.barrier()

    def unsupported(self, dtype: str, op: str) -> bool:
        """Averages: of integers nowhere, and gloo, the peer, has none at all."""
        return op == "average" and (dtype.startswith("int") or self.name == "torch:gloo")


class HorovodAdapter(Collectives):
    """horovod.torch. Every operation gets a name: Horovod pairs the ranks' calls by it."""

    name = "horovod"

    def __init__(self) -> None:
        import horovod.torch as hvd

        hvd.init()
        self.hvd: Any = hvd
        self.has_cuda = hvd.cuda_built()
        self.ops = {
            "sum": hvd.Sum,
            "prod": hvd.Product,
            "min": hvd.Min,
            "max": hvd.Max,
            "average": hvd.Average,
        }
        self.calls = 0

    def _name(self) -> str:
        self.calls += 1
        return f"smoke.{self.calls}"

    def allreduce(self, tensor: torch.Tensor, op: str) -> torch.Tensor:  # noqa: D102
        return torch.as_tensor(self.hvd.allreduce(tensor, op=self.ops[op], name=self._name()))

    def broadcast(self, tensor: torch.Tensor, root: int) -> torch.Tensor:  # noqa: D102
        return torch.as_tensor(self.hvd.broadcast(tensor, root, name=self._name()))

    def allgather(self, tensor: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return torch.as_tensor(self.hvd.allgather(tensor, name=self._name()))

    def reduce_scatter(self, tensor: torch.Tensor, op: str) -> torch.Tensor:  # noqa: D102
        return torch.as_tensor(self.hvd.reducescatter(tensor, op=self.ops[op], name=self._name()))

    def barrier(self) -> None:  # noqa: D102
        self.hvd.barrier()

    def unsupported(self, dtype: str, op: str) -> bool:
        """Averages of integers."""
        return op == "average" and dtype.startswith("int")

    def scatters(self, op: str) -> bool:
        """Horovod's reduce-scatter sums and averages, no more."""
        return op in ("sum", "average")


class TensorFlowAdapter(Collectives):
    """ddl's TensorFlow operations."""

    name = "tensorflow"

    def __init__(self) -> None:
        import ddl_tensorflow
        import tensorflow as tf

        self.ddl: Any = ddl_tensorflow
        self.tf: Any = tf

    def _tensor(self, tensor: torch.Tensor) -> Any:
        if tensor.dtype is torch.bfloat16:
            return self.tf.bitcast(tensor.view(torch.int16).numpy(), self.tf.bfloat16)
        return self.tf.constant(tensor.numpy())

    def _back(self, tensor: Any) -> torch.Tensor:
        if tensor.dtype == self.tf.bfloat16:
            bits = self.tf.bitcast(tensor, self.tf.int16).numpy()
            return torch.as_tensor(bits).view(torch.bfloat16)
        return torch.as_tensor(tensor.numpy())

    def allreduce(self, tensor: torch.Tensor, op: str) -> torch.Tensor:  # noqa: D102
        return self._back(self.ddl.allreduce(self._tensor(tensor), op=op))

    def broadcast(self, tensor: torch.Tensor, root: int) -> torch.Tensor:  # noqa: D102
        return self._back(self.ddl.broadcast(self._tensor(tensor), root=root))

    def allgather(self, tensor: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return self._back(self.ddl.allgather(self._tensor(tensor)))

    def reduce_scatter(self, tensor: torch.Tensor, op: str) -> torch.Tensor:  # noqa: D102
        return self._back(self.ddl.reduce_scatter(self._tensor(tensor), op=op))

    def barrier(self) -> None:  # noqa: D102
        import ddl

        ddl.barrier()

    def unsupported(self, dtype: str, op: str) -> bool:
        """Averages of integers."""
        return op == "average" and dtype.startswith("int")


#: The adapters by the word that chooses each; torch.distributed is chosen by its backend instead.
ADAPTERS: dict[str, Callable[[], Collectives]] = {
    adapter.name: adapter for adapter in (DdlAdapter, HorovodAdapter, TensorFlowAdapter)
}
