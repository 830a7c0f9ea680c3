"""What is wrong with this host before ranks start, in sentences, once on every host.

For rank.py; and for `ddl.init`, where another launcher has started the ranks.

MPICH shares memory by /dev/shm, and the kernel ends a process by SIGBUS that touches a page for
which there is no place. This module is used beside every rank and imports next to nothing.
"""

import fcntl
import os
import struct

FOLDER = "/dev/shm"
PER_RANK = 1057344  # bytes of MPICH's segment for each rank of a host; seen with MPICH 5.0
_MIB = 1 << 20
_SIOCGIFFLAGS = 0x8913
_IFF_UP = 1


def troubles(n_local: int, folder: str = FOLDER) -> list[str]:
    """Sentences, for a host with so many ranks of the job."""
    needed = -(-n_local * PER_RANK // _MIB) + 1  # MiB
    ask = f"MPI needs {needed} MiB there for this host's {n_local} ranks"
    found = []
    try:
        about = os.statvfs(folder)
    except OSError as error:
        found.append(f"{folder}: {error.strerror}, and {ask}")
    else:
        free = about.f_bavail * about.f_frsize // _MIB
        if about.f_flag & os.ST_RDONLY or not os.access(folder, os.W_OK):
            found.append(f"{folder} cannot be written, and {ask}: have it mounted for writing")
        elif free < needed:
            found.append(
                f"{folder} has {free} MiB free, and {ask}: remove files there, or have it mounted "
                "with more (docker run --shm-size)"
            )
    if n_local > 1 and not loopback_is_up():
        found.append(
            "the loopback device is down, so ranks of this host may not reach each other: "
            "`ip link set lo up`"
        )
    return found


def words_on_sigbus(folder: str = FOLDER) -> str:
    """A sentence about a process that was killed by SIGBUS."""
    try:
        about = os.statvfs(folder)
    except OSError as error:
        return f"killed by SIGBUS: {folder}: {error.strerror}"
    free = about.f_bavail * about.f_frsize // _MIB
    return (
        f"killed by SIGBUS, as where shared memory has no place: {folder} has {free} MiB free, or "
        "a file that the program maps has become shorter"
    )


def loopback_is_up() -> bool:
    """Whether the device lo is up; True where the kernel does not tell."""
    try:
        import _socket  # socket costs as much as the rest

        file = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
        try:
            asked = struct.pack("16sh14x", b"lo", 0)
            told = fcntl.ioctl(file.fileno(), _SIOCGIFFLAGS, asked)
        finally:
            file.close()
    except (OSError, ImportError):
        return True
    _, flags = struct.unpack("16sh14x", told)
    return bool(flags & _IFF_UP)
