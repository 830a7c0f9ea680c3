"""The floor: the least memory that an iteration can run in, and the error of a limit below it."""

from __future__ import annotations

from dataclasses import dataclass

from lms.errors import HostMemoryError, NoPlanError
from lms.planning.trace import PackKey, Trace
from lms.sizes import size_text

#: Saved tensors that the error names.
_NAMED = 3


@dataclass(frozen=True)
class Floor:
    """The memory at its highest when all is away that can be. Sizes in bytes.

    Attributes:
        total: all of it.
        base: the part that was in use when the iteration began.
        saved: storages that are there because they are saved for backward, or that are parameters.
    """

    total: int
    base: int
    saved: tuple[PackKey, ...]

    def __str__(self) -> str:
        saved = min(sum(key.nbytes for key in self.saved), self.total)
        base = min(self.base, self.total - saved)
        by_size = sorted(self.saved, key=lambda key: -key.nbytes)[:_NAMED]
        names = ", ".join(f"{k.dtype.removeprefix('torch.')} {k.shape}" for k in by_size)
        parts = [
            f"{size_text(base)} that the iteration began with (parameters, gradients, the "
            "optimizer's state, the batch), by lms.page_parameters(...) and lms.page_optimizer(...)"
        ] * (base > 0)
        operations = "by a smaller batch, or by torch.utils.checkpoint for the layers there"
        if saved:
            count = f"{len(self.saved)} saved tensor{'s' * (len(self.saved) > 1)} in use at once"
            parts.append(f"{size_text(saved)} of {count} ({names}), {operations}")
        if (other := self.total - base - saved) > 0:
            parts.append(f"{size_text(other)} of other results{f', {operations}' * (not saved)}")
        return "; ".join(parts)


def floor_of(trace: Trace, movable: set[int], more: int = 0) -> Floor:
    """The floor of an iteration like `trace`.

    Args:
        movable: the blocks that can leave.
        more: bytes that the next such iteration begins with beside those that this one has.
    """
    curve = trace.resident(movable)
    curve[:-1] += more  # in the last interval they were there
    event = int(curve.argmax())
    keys = {key.block: key for key in trace.keys if key is not None}
    saved = []
    for number, key in keys.items():
        block = trace.blocks[number]
        away = number in movable and block.last_held < event < block.used
        if block.packed <= event <= max(block.last_held, block.freed) and not away:
            saved.append(key)
    return Floor(int(curve[event]), trace.base + more, tuple(saved))


def no_plan(
    floor: Floor, limit: int, enough: int, host_full: HostMemoryError | None = None
) -> NoPlanError:
    """The error of a limit below the floor.

    Args:
        enough: the lowest limit above it.
        host_full: the reason if not all has left that can.
    """
    short = enough - limit
    stays = f". Not all has gone: {host_full}" if host_full else ""
    return NoPlanError(
        f"no plan keeps this iteration within {limit} bytes ({size_text(limit)}): with every saved "
        f"tensor gone that can go it is {short} bytes ({size_text(short)}) short; raise the limit "
        f"to {enough} bytes ({size_text(enough)}), or lower the memory there: {floor}{stays}",
        short,
    )
