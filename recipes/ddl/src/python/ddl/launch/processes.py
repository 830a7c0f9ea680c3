"""The processes below another one, as /proc has them, and signals to them.

For ddlrun, and for rank.py, beside every rank: it imports next to nothing.
"""

import os
import signal


def children(of: int) -> list[int]:
    """The children of a process, living or dead."""
    return [pid for pid, (parent, _) in table().items() if parent == of]


def is_dead(pid: int) -> bool:
    """Whether a process has ended: its parent may not have asked how."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True


def table() -> dict[int, tuple[int, int]]:
    """The parent and the process group of each process."""
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/stat") as file:  # noqa: PTH123
                    words = file.read().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            found[int(entry.name)] = int(words[1]), int(words[2])
    return found


def strangers() -> list[int]:
    """Processes below this one that have left its process group, the first of each branch."""
    known, mine = table(), [os.getpid()]
    found: list[int] = []
    group = known[os.getpid()][1]
    while mine:
        parent = mine.pop()
        for pid, (its_parent, its_group) in known.items():
            if its_parent == parent:
                (mine if its_group == group else found).append(pid)
    return found


def send(number: int, roots: list[int]) -> bool:
    """Sends a signal to the first process of each branch that catches it; whether any was sent.

    That one may pass it on, as `timeout` does. A signal that asks to end goes to those above it,
    too.
    """
    known, sent = table(), False
    for root in roots:
        if catches(root, number):
            sent = kill(root, number) or sent
            continue
        sent = send(number, [pid for pid, (parent, _) in known.items() if parent == root]) or sent
        if number not in (signal.SIGUSR1, signal.SIGUSR2):
            sent = kill(root, number) or sent
    return sent


def kill(pid: int, number: int) -> bool:
    """Whether the process has got the signal."""
    try:
        os.kill(pid, number)
    except OSError:  # it has ended, or changed its user
        return False
    return True


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal."""
    try:
        with open(f"/proc/{pid}/status") as file:  # noqa: PTH123
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except OSError:
        pass
    return False
