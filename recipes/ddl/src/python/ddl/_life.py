"""Start and end of the library, and where this rank is."""

from __future__ import annotations

import atexit
import os
import sys
import time

from ddl import _core
from ddl._exit import failure, is_the_ranks
from ddl._timeouts import ALONE_TIMEOUT_S
from ddl.errors import DDLError, Result, check
from ddl.launch.host_state import troubles
from ddl.launch.sweep import sweep


def init(options: str | None = None) -> None:
    """Start the library, and MPI unless the program has; collective over all ranks.

    A second call changes nothing. Without a launcher the job has one rank. At the interpreter's
    exit the library ends by itself.

    Args:
        options: as in DDL_OPTIONS, whose value is the default: `-mode X:AxBxC`, `-topology FILE`,
            `-schedule WORD`, `-deterministic 0|1`, `-timeout SECONDS`, `-fusion_bytes N`,
            `-fusion_wait MS`, `-dbg_level 0|1|2`, `-dump_iter N`, `-timeline FILE`,
            `-dev_sync 0|1|2`. DDL's letter X and `-rebind_iter N` are taken, and change nothing.

    Raises:
        DDLError: a bad option (then also a ValueError), or MPI or shared memory failed.
    """
    if _core.initialized():
        return
    if _is_first_of_host():
        _look_at_host()
    check(_core.init(options))
    # Ends before MPI does where mpi4py runs MPI: Python's exit functions come before the C ones.
    atexit.register(_end_at_exit)


def _is_first_of_host() -> bool:
    """Whether a launcher says so: torchrun and ddlrun, mpiexec, or srun."""
    names = ("LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
    return next((os.environ[name] for name in names if name in os.environ), "") == "0"


def _look_at_host() -> None:
    """Sweeps, and says what MPI lacks here, where ddlrun has not done so."""
    sweep()  # of ranks that were killed, as before torchrun starts them again
    if "DDLRUN_WRAPPER" in os.environ:
        return
    sizes = [os.environ.get(name, "") for name in ("LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS")]
    n_local = next((int(size) for size in sizes if size.isdecimal()), 1)
    for words in troubles(n_local):
        print(f"[ddl] {words}", file=sys.stderr, flush=True)


def finalize() -> None:
    """End the library, and MPI if `init` started it; collective over all ranks.

    Waits for what is under way.

    Raises:
        DDLError: other ranks are in another call, or did not come within the timeout.
    """
    check(_core.finalize())
    atexit.unregister(_end_at_exit)


def initialized() -> bool:
    """Whether the library runs: between `init` and `finalize`."""
    return _core.initialized()


def abort(reason: str, code: int = 1) -> None:
    """End the whole job at once, with `reason` on stderr; does not return.

    For a rank that cannot go on while the others wait for it. An uncaught exception does this by
    itself.
    """
    sys.stdout.flush()
    _core.abort(code, reason)


def _end_at_exit() -> None:
    """Finalise; but if this rank failed, end the job: the others may wait for it forever."""
    if not is_the_ranks():
        return
    error = failure()
    if error is not None:
        abort(f"uncaught {type(error).__name__}: {error}")
    # While others are in another call, each try makes that call fail on them, so they leave too.
    deadline = time.monotonic() + timeout()
    # Others may go on alone, to evaluate or to save a model: that is no reason to end their work. A
    # rank that is gone is found all the same, on this host by us, elsewhere by the launcher.
    set_timeout(max(timeout(), ALONE_TIMEOUT_S))
    while True:
        try:
            return finalize()
        except DDLError as error:
            if error.code is not Result.MISMATCH or time.monotonic() > deadline:
                abort(str(error))


def ensure() -> None:
    """Start the library if DDL_OPTIONS asks for it, as `ddlrun` does; else ask for init.

    Raises:
        DDLError: `init` was not called and DDL_OPTIONS is not set.
    """
    if not _core.initialized() and "DDL_OPTIONS" in os.environ:
        init()


def _get(result: tuple[int, int]) -> int:
    code, value = result
    check(code)
    return value


def rank() -> int:
    """Return this process's number among all, 0 to size-1."""
    ensure()
    return _get(_core.rank())


def size() -> int:
    """Return the number of processes of the job."""
    ensure()
    return _get(_core.size())


def local_rank() -> int:
    """Return this process's number among those of its host, 0 to local_size-1."""
    ensure()
    return _get(_core.local_rank())


def local_size() -> int:
    """Return the number of processes on this host."""
    ensure()
    return _get(_core.local_size())


def num_hosts() -> int:
    """Return the number of hosts."""
    ensure()
    return _get(_core.num_hosts())


def host_index() -> int:
    """Return this host's number; hosts count by their lowest rank."""
    ensure()
    return _get(_core.host_index())


def host_name(rank: int) -> str:
    """Return the name of the host that `rank` runs on.

    Raises:
        DDLError: there is no such rank (then also a ValueError).
    """
    ensure()
    code, name = _core.host_name(rank)
    check(code)
    return name


def set_timeout(seconds: float) -> None:
    """Set how long every wait may last, in seconds, on this rank from now on.

    Raises:
        DDLError: not above 0 (then also a ValueError), or not initialised.
    """
    ensure()
    check(_core.set_timeout(seconds))


def timeout() -> float:
    """Return how long every wait may last, in seconds."""
    return _core.get_timeout()
