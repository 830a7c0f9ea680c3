"""Runs once on every host beside a job's ranks: `python -I -S sweep.py PROCESS GRACE`.

MPICH's ranks share memory under a name in /dev/shm. The last rank removes it, but not when they are
killed, or end by MPI_Abort. UCX's segments, below it, have a name for an instant. This program
waits for the end of mpiexec's proxy, the one PROCESS that outlives all ranks of its host, and
removes what the ranks left. It is nobody's child, so it is still there when everything of the job
has been killed, and it ends within seconds of the job. Other launchers, such as torchrun, have
nobody who does so: `ddl.init` removes what earlier jobs have left.

The kernel says which segments are left over. It gives a lease on a file for writing only while
nobody else has it open or mapped (fcntl(2), F_SETLEASE). That includes other containers, and
processes that /proc does not show us. A process that makes a segment has it open until it is
mapped, so a segment of a living job is held at every moment, and stays. Without leases, all
segments stay.
"""

import fcntl
import os
import select
import signal
import sys
import time

FOLDER = "/dev/shm"
NAMES = (
    ("mpich_shm_", "0123456789abcdef_"),  # MPIDI_POSIX_comm_bootstrap of MPICH 4.3 and later
    ("mpich_vci_", "0123456789abcdef_"),
    ("ucx_shm_posix_", "0123456789abcdef"),  # uct/sm/mm/posix of UCX
)
END_TIMEOUT_S = 8.0  # for the ranks to end after the proxy, and after their grace
MARGIN = 5.0  # seconds by which another rank of this host may have been quicker than we


def main() -> None:
    """Waits for the end of the process, and sweeps until nothing of its ranks is left."""
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    from awake import now  # type: ignore[import-not-found]

    since = time.time() - MARGIN
    wait_for_end(int(sys.argv[1]))
    deadline = now() + float(sys.argv[2]) + END_TIMEOUT_S
    folder = sys.argv[3] if len(sys.argv) > 3 else FOLDER  # a test's own
    while sweep(since, folder) and now() < deadline:
        time.sleep(0.2)  # held by ranks that are still ending, or by another job of this user


def sweep(since: float = 0.0, folder: str = FOLDER) -> bool:
    """Removes this user's segments that nobody uses; whether any are held.

    `since` is the moment (of time.time) before which a segment is none of ours.
    """
    found = left_behind(since, folder)
    held = [name for name in found if not remove_if_unused(f"{folder}/{name}")]
    return bool(held)


def wait_for_end(process: int) -> None:
    """Sleeps until the process is gone."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    except OSError:  # Linux before 5.3, or a sandbox that does not know this call
        while os.path.exists(f"/proc/{process}"):  # noqa: PTH110
            time.sleep(1)
    else:
        select.select([handle], [], [])


def left_behind(since: float, folder: str) -> list[str]:
    """This user's segments that are not older than the job."""
    found: list[str] = []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return found
    for entry in entries:
        for begin, letters in NAMES:
            if entry.name.startswith(begin) and not entry.name[len(begin) :].strip(letters):
                try:
                    about = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # just removed
                if about.st_uid == os.geteuid() and about.st_ctime >= since:
                    found.append(entry.name)
    return found


def remove_if_unused(path: str) -> bool:
    """Removes a segment that no process has open or mapped; whether it is gone."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        # The kernel asks for a lease back by SIGIO, which would end us; SIGURG is ignored.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        os.unlink(path)  # noqa: PTH108 (pathlib costs as much as the rest of this file)
        return True
    except FileNotFoundError:
        return True  # another sweep was quicker
    except OSError:
        return False
    finally:
        os.close(file)


if __name__ == "__main__":
    main()
