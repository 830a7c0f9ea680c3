"""torch's operations of a group, carried out by a companion."""

from __future__ import annotations

import threading
import weakref
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from ddl_torch.companion.client import Companion, CompanionError
from ddl_torch.companion.messages import Begin, Options

if TYPE_CHECKING:
    from torch import Tensor

    from ddl_torch.companion.client import Group


class CompanionWork(dist._Work):
    """An operation under way."""

    def __init__(self, done: torch.futures.Future[Any]) -> None:
        super().__init__()
        self._done = done

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for its end; its own timeout ends it, not this one.

        Raises:
            CompanionError: it has failed.
        """
        self._done.wait()
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return self._done.done()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self._done.done() and self.exception() is None

    def exception(self) -> Exception | None:
        """Its failure, once it has ended."""
        if self._done.done():
            try:
                self._done.value()
            except Exception as error:
                return error
        return None

    def get_future(self) -> torch.futures.Future[Any]:
        """Its future, with the tensors that it has filled."""
        return self._done


class CompanionGroup:
    """The operations of a ProcessGroup of torch, for CPU tensors, over any ranks at any time.

    It is mixed into a class of torch's or of torchft's. `configure` makes the group of the ranks
    that are there, as often as they change. A failed operation raises or ends with CompanionError;
    from then on all fail, until `configure`. A wrong call is a ValueError, and changes nothing.

    Args:
        timeout: for ranks to meet, and for operations that have none of their own.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        super().__init__(0, 1)  # type: ignore[call-arg] # torch's
        self._timeout = timeout
        self._size = 1
        self._changing = threading.Lock()
        self._begin_companion()  # it loads torch while the program begins
        self._group: Group | None = None

    def configure(
        self,
        store_addr: str,
        replica_id: str,
        rank: int,
        world_size: int,
        *_details: Any,
        **_more: Any,
    ) -> None:
        """Make the group anew; collective over its ranks. The one before ends.

        Args:
            store_addr: host:port/prefix of a TCPStore. No other group may have had the prefix.
            replica_id: torchft's name of this rank, which nothing needs here.
            rank: this rank in the group.
            world_size: of the group.

        Raises:
            CompanionError: some ranks did not come within the timeout.
        """
        with self._changing:
            self._fail()
            order = Begin(store_addr, rank, world_size, self._timeout.total_seconds())
            try:
                self._group = self._companion.begin(order)
            except CompanionError:  # somebody has killed it
                self._companion.end()
                self._begin_companion()
                self._group = self._companion.begin(order)
            self._size = world_size
            group = self._group
        group.wait()

    def abort(self) -> None:
        """End the group at once; operations under way fail."""
        with self._changing:
            self._fail()
            if self._group:
                self._companion.end_group()

    def shutdown(self) -> None:
        """As `abort`. The companion stays for the next `configure`, and ends with this object."""
        self.abort()

    def _begin_companion(self) -> None:
        self._companion = Companion()
        # Not __del__: in a cycle, as an error's traceback makes one, it comes after the socket's.
        weakref.finalize(self, Companion.end, self._companion).atexit = False

    def _fail(self) -> None:
        if self._group:  # it stays, for it has the error
            self._group.fail("the group has been aborted")

    def errored(self) -> Exception | None:
        """The first failure since `configure`, or None."""
        return self._group.error if self._group else None

    def set_timeout(self, timeout: timedelta) -> None:
        """Give operations to come that much time."""
        self._timeout = timeout

    def size(self) -> int:
        """How many ranks the group has."""
        return self._size

    def getBackendName(self) -> str:
        """The name of this kind of group."""
        return "ddl-companion"

    def _run(
        self, name: str, written: list[Tensor], read: list[Tensor], *arguments: Any
    ) -> CompanionWork:
        if self._group is None:
            raise CompanionError(f"{name}: the group has no ranks yet; call configure first")
        for tensor in (*written, *read):
            if tensor.device.type != "cpu":
                raise ValueError(f"{name}: the tensor is on {tensor.device}; give CPU tensors")
        return self._work(self._group.call(name, arguments, written, read))

    def _work(self, done: torch.futures.Future[Any]) -> CompanionWork:
        return CompanionWork(done)

    def _options(self, given: Any, kind: type) -> Options:
        """What torch was given, which may be a reduction alone, with a timeout."""
        options: Any = given if isinstance(given, kind) else kind()
        if given is not None and not isinstance(given, kind):
            options.reduceOp = given
        names = [name for name in dir(options) if not name.startswith("_")]
        values = {name: getattr(options, name) for name in names}
        if values["timeout"] < timedelta(0):
            values["timeout"] = self._timeout
        return Options(kind, {name: one for name, one in values.items() if one is not None})

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> CompanionWork:
        """As torch's."""
        options = self._options(opts, c10d.AllreduceOptions)
        return self._run("allreduce", tensors, tensors, tensors, options)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> CompanionWork:
        """As torch's."""
        options = self._options(opts, c10d.AllreduceCoalescedOptions)
        return self._run("allreduce_coalesced", tensors, tensors, tensors, options)

    def allgather(
        self, output_tensors: list[list[Tensor]], input_tensor: list[Tensor], opts: Any = None
    ) -> CompanionWork:
        """As torch's."""
        options = self._options(opts, c10d.AllgatherOptions)
        written = [one for several in output_tensors for one in several]
        return self._run("allgather", written, input_tensor, output_tensors, input_tensor, options)

    def allgather_into_tensor_coalesced(
        self, output_tensors: list[Tensor], input_tensors: list[Tensor], opts: Any = None
    ) -> CompanionWork:
        """As torch's."""
        options = self._options(opts, c10d.AllgatherOptions)
        name = "allgather_into_tensor_coalesced"
        return self._run(
            name, output_tensors, input_tensors, output_tensors, input_tensors, options
        )

    def alltoall_base(
        self,
        output_buffer: Tensor,
        input_buffer: Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: Any = None,
    ) -> CompanionWork:
        """As torch's."""
        options = self._options(opts, c10d.AllToAllOptions)
        splits = (list(output_split_sizes), list(input_split_sizes))
        pair = (output_buffer, input_buffer)
        return self._run("alltoall_base", [output_buffer], [input_buffer], *pair, *splits, options)

    def barrier(self, opts: Any = None) -> CompanionWork:
        """As torch's."""
        return self._run("barrier", [], [], self._options(opts, c10d.BarrierOptions))

    def broadcast(self, tensor_list: list[Tensor], opts: Any = None) -> CompanionWork:
        """As torch's."""
        options = self._options(opts, c10d.BroadcastOptions)
        return self._run("broadcast", tensor_list, tensor_list, tensor_list, options)

    def broadcast_one(self, tensor: Tensor, root: int) -> CompanionWork:
        """As torchft's."""
        options = c10d.BroadcastOptions()
        options.rootRank = root
        return self.broadcast([tensor], options)

    def reduce_scatter(
        self, output_tensors: list[Tensor], input_tensors: list[list[Tensor]], opts: Any = None
    ) -> CompanionWork:
        """As torch's."""
        options = self._options(opts, c10d.ReduceScatterOptions)
        read = [one for several in input_tensors for one in several]
        return self._run(
            "reduce_scatter", output_tensors, read, output_tensors, input_tensors, options
        )

    def reduce_scatter_tensor_coalesced(
        self, output_tensors: list[Tensor], input_tensors: list[Tensor], opts: Any = None
    ) -> CompanionWork:
        """As torch's."""
        options = self._options(opts, c10d.ReduceScatterOptions)
        name = "reduce_scatter_tensor_coalesced"
        return self._run(
            name, output_tensors, input_tensors, output_tensors, input_tensors, options
        )

    def send(self, tensors: list[Tensor], dst_rank: int, tag: int) -> CompanionWork:
        """As torch's."""
        return self._run("send", [], tensors, tensors, dst_rank, tag)

    def recv(self, tensors: list[Tensor], src_rank: int, tag: int) -> CompanionWork:
        """As torch's."""
        return self._run("recv", tensors, [], tensors, src_rank, tag)
