"""Runs once on every host beside a job's ranks: `python -I -S sweep.py PROCESS`.

MPICH's ranks share memory under a name in /dev/shm, which the last of them removes: not when they
are killed, or end by MPI_Abort. This waits for the end of mpiexec's proxy, the one PROCESS that
outlives all ranks of its host, and removes what they left. It is nobody's child, so that it is
still there when everything of the job has been killed, and it ends within seconds of the job.
"""

import os
import select
import sys
import time

FOLDER = "/dev/shm"
NAMES = ("mpich_shm_", "mpich_vci_")  # MPIDI_POSIX_comm_bootstrap of MPICH 4.3 and later
PATIENCE = 10.0  # seconds for the ranks to end after the proxy; longer than rank.py's GRACE
MARGIN = 5.0  # seconds by which another rank of this host may have been quicker than we


def main() -> None:
    """Waits for the end of the process, and sweeps until nothing of its ranks is left."""
    since = time.time() - MARGIN
    wait_for_end(int(sys.argv[1]))
    deadline = time.monotonic() + PATIENCE
    while (found := left_behind(since)) and time.monotonic() < deadline:
        used = names_in_use(found)
        for name in found - used:
            try:  # noqa: SIM105 (contextlib costs as much as the rest of this file)
                os.unlink(f"{FOLDER}/{name}")  # noqa: PTH108 (so does pathlib)
            except OSError:
                pass  # another sweep was quicker
        if used:  # by ranks that are still ending, or by another job of this user
            time.sleep(0.2)


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


def left_behind(since: float) -> set[str]:
    """This user's segments that are not older than the job."""
    found = set()
    for entry in os.scandir(FOLDER):
        if entry.name.startswith(NAMES):
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # just removed
            if about.st_uid == os.geteuid() and about.st_ctime >= since:
                found.add(entry.name)
    return found


def names_in_use(names: set[str]) -> set[str]:
    """Those of the names that a process has open or mapped.

    Who made a segment has it open until it is mapped, so it is looked for in this order.
    """
    used: set[str] = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                files = [os.readlink(file) for file in os.scandir(f"{entry.path}/fd")]  # noqa: PTH115
                with open(f"{entry.path}/maps") as file:  # noqa: PTH123
                    files += [line.rpartition(" ")[2].rstrip("\n") for line in file]
            except OSError:
                continue  # ended, or another user's, who cannot have opened it
            used.update(name for name in names if f"{FOLDER}/{name}" in files)
    return used


if __name__ == "__main__":
    main()
