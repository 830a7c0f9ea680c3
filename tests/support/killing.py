"""A machine that ends a command before its n-th system call that changes a file, or lets it fail.

The kernel asks a supervisor about each such call of the command, of its threads and of all that it
starts (seccomp's user notification). So it is exact: when the supervisor does not answer, no byte
changes any more. As `python -m support.killing`, it is a server whose process has loaded `ddlce`
already: a command is a fork of it, and begins at once.

Source: seccomp_unotify(2), linux/seccomp.h, and the numbers of x86-64's system calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import importlib
import json
import os
import pkgutil
import platform
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

#: Calls that change a file, a folder or their data, by number.
WRITES = {
    **{1: "write", 18: "pwrite64", 20: "writev", 40: "sendfile", 77: "ftruncate"},
    **{285: "fallocate", 296: "pwritev", 326: "copy_file_range", 328: "pwritev2"},
}
NAMES = {
    **{76: "truncate", 82: "rename", 83: "mkdir", 84: "rmdir", 85: "creat", 86: "link"},
    **{87: "unlink", 88: "symlink", 90: "chmod", 91: "fchmod", 132: "utime", 133: "mknod"},
    **{235: "utimes", 258: "mkdirat", 263: "unlinkat", 264: "renameat", 265: "linkat"},
    **{266: "symlinkat", 268: "fchmodat", 280: "utimensat", 316: "renameat2", 437: "openat2"},
    **{452: "fchmodat2"},
}
SYNCS = {74: "fsync", 75: "fdatasync", 306: "syncfs"}
OPEN, OPENAT, IOCTL, SECCOMP = 2, 257, 16, 317
FICLONE, CREATES = 0x40049409, os.O_CREAT | os.O_TRUNC

#: Calls that take space, and fail when there is none.
TAKE_SPACE = {1, 18, 20, 40, 83, 85, 86, 88, 285, 296, 326, 328, 258, 265, 266, 437, OPEN, OPENAT}

ARCH_X86_64 = 0xC000003E
LOAD, IF_EQUAL, IF_SET, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
RECEIVE, SEND = 0xC0502100, 0xC0182101
NEW_LISTENER, CONTINUE = 1 << 3, 1


def possible() -> bool:
    """Whether this kernel asks supervisors."""
    if platform.machine() != "x86_64":
        return False
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    return actions.is_file() and "user_notif" in actions.read_text().split()


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        calls: how many calls it made that change a file.
        status: its exit status; -9 where it was killed.
        said: its output.
        last: the name of the call that it was killed before, or that failed.
    """

    calls: int
    status: int
    said: str
    last: str


class Machine:
    """The client's side."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "support.killing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def run(
        self,
        argv: list[str],
        env: dict[str, str],
        cwd: Path,
        *,
        at: int = 0,
        code: int = 0,
        program: str = "",
    ) -> Ended:
        """Run `ddlce ARGV`, or another program.

        Args:
            at: before which call it is killed, from 1; 0: not at all.
            code: instead of being killed, this call fails with it. ENOSPC: so do all later ones
                that take space.
            program: the other program's path.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        job = {"argv": argv, "env": env, "cwd": str(cwd), "at": at, "code": code}
        job["program"] = program
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return Ended(**json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        """End the server."""
        self.process.communicate()


def _filter() -> bytes:
    """The BPF program: which calls the kernel asks about."""
    code = [(LOAD, 0, 0, 4), (IF_EQUAL, 1, 0, ARCH_X86_64), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, 0)]
    for number in (*WRITES, *NAMES, *SYNCS):
        code += [(IF_EQUAL, 0, 1, number), (RETURN, 0, 0, NOTIFY)]
    for number, argument, test, value in (
        (OPEN, 1, IF_SET, CREATES),
        (OPENAT, 2, IF_SET, CREATES),
        (IOCTL, 1, IF_EQUAL, FICLONE),
    ):
        code += [(IF_EQUAL, 0, 4, number), (LOAD, 0, 0, 16 + 8 * argument), (test, 0, 1, value)]
        code += [(RETURN, 0, 0, NOTIFY), (RETURN, 0, 0, ALLOW)]
    code += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *each) for each in code)


def _listen() -> int:
    """Put this process and its children under a supervisor; returns its descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = _filter()
    text = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(text))
    given = ctypes.create_string_buffer(header, len(header))
    if libc.prctl(38, 1, 0, 0, 0):  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "prctl")
    descriptor = int(libc.syscall(SECCOMP, 1, NEW_LISTENER, given))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return descriptor


def _child(job: dict[str, Any], output: int, parent: socket.socket) -> NoReturn:
    """Run the command; never returns."""
    status = 70
    try:
        os.chdir(job["cwd"])
        os.environ.clear()
        os.environ.update(job["env"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv = ["ddlce", *job["argv"]]
        listener = _listen()
        socket.send_fds(parent, [b"x"], [listener])
        os.close(listener)
        if job["program"]:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as a shell has it; Python ignores it
            os.execve(job["program"], [job["program"], *job["argv"]], job["env"])
        from ddlce.__main__ import main

        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _serve_one(job: dict[str, Any], folder: Path) -> Ended:
    path = folder / "output"
    output = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        _child(job, output, theirs)
    theirs.close()
    _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    calls, last = _supervise(listener, child, str(path), job["at"], job["code"])
    os.close(listener)
    _, status = os.waitpid(child, 0)
    _reap()
    os.close(output)
    said = path.read_text(errors="replace")
    return Ended(calls, os.waitstatus_to_exitcode(status), said, last)


def _supervise(listener: int, child: int, output: str, at: int, code: int) -> tuple[int, str]:
    """Answer the kernel until the command ends; how many calls it made, and the chosen one."""
    calls, last = 0, ""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        events = poll.poll(60_000)
        if not events:
            _kill(child)
            return calls, "hangs"
        if not events[0][1] & select.POLLIN:
            return calls, last
        asked = bytearray(80)
        try:
            fcntl.ioctl(listener, RECEIVE, asked)
        except OSError:  # it has been killed since
            continue
        number, pid, _, call, _, _, *arguments = struct.unpack("QIIiIQ6Q", asked)
        answer = 0
        if call not in WRITES or _is_file(pid, arguments[0], output):
            calls += 1
            full = code == errno.ENOSPC and at and calls >= at and call in TAKE_SPACE
            if calls == at or full:
                last = last or {**WRITES, **NAMES, **SYNCS}.get(call, "open")
                if not code:
                    _kill(child)
                    return calls, last
                answer = -code if calls == at or full else 0
        sent = struct.pack("Qqi", number, 0, answer) + struct.pack("I", 0 if answer else CONTINUE)
        with contextlib.suppress(FileNotFoundError):
            fcntl.ioctl(listener, SEND, bytearray(sent))


def _is_file(pid: int, descriptor: int, output: str) -> bool:
    """Whether a descriptor is a file, and not the one with the command's output."""
    try:
        path = f"/proc/{pid}/fd/{descriptor & 0xFFFFFFFF}"
        return stat.S_ISREG(os.stat(path).st_mode) and os.readlink(path) != output  # noqa: PTH115, PTH116
    except OSError:
        return False


def _descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _kill(child: int) -> None:
    """End a process and all that it has started: orphans are ours, as we are their subreaper."""
    while alive := [p for p in _descendants(os.getpid()) if not _is_zombie(p)]:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    """Answer one job a line."""
    import tempfile

    import ddlce

    for module in pkgutil.walk_packages(ddlce.__path__, "ddlce."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            ended = _serve_one(json.loads(line), Path(folder))
            print(json.dumps(ended.__dict__), flush=True)


if __name__ == "__main__":
    main()
