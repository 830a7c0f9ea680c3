"""Runs on every host around one rank: `python -I -S rank.py PROGRAM [ARGUMENTS]`.

It gives the program its variables and cores, tells ddlrun through its stderr how the
program ended, and sees to it that nothing the program started outlives it. It runs beside every
rank, so it imports next to nothing.
"""

import _thread  # threading costs as much as the rest of this file
import ctypes
import fcntl
import os
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (so does pathlib)
sys.path.append(HERE)  # -I leaves it out
from awake import now, until  # type: ignore[import-not-found]  # noqa: E402
from bind import bind  # type: ignore[import-not-found]  # noqa: E402
from host_state import (  # type: ignore[import-not-found]  # noqa: E402
    troubles,
    words_on_sigbus,
)
from processes import (  # type: ignore[import-not-found]  # noqa: E402
    children,
    kill,
    send,
    strangers,
)
from step import give_back  # type: ignore[import-not-found]  # noqa: E402
from variables import decode_nodes, identify  # type: ignore[import-not-found]  # noqa: E402

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Variables that each host keeps: its place (see place.h), and the GPUs that the job may use there.
OWN = ("DDL_PLACE", "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN", "CUDA_VISIBLE_DEVICES")
INPUT = 2.0  # seconds until ddlrun has closed the input of a rank that has ended
END_TIMEOUT_S = 30.0  # that a rank which has ended waits for mpiexec to end it

_prctl = ctypes.CDLL(None).prctl


def main() -> None:
    """Runs the command, reports its end and ends in the same way."""
    parent = os.getppid()
    give_back(os.environ)
    grace = float(os.environ.pop("DDLRUN_GRACE"))  # the default is GRACE in options.py
    keeps_going = bool(os.environ.pop("DDLRUN_KEEP_GOING", ""))
    if os.environ["MPI_LOCALRANKID"] == "0":
        start_sweep(parent, grace)
    hold_copy()
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Blocked from here on, and fetched by sigtimedwait: no signal can fall between two steps.
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD}
    signals.add(signal.SIGUSR1)  # for the program alone: it comes to the whole process group
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    if os.getppid() != parent:
        os._exit(1)
    token = os.environ.pop("DDLRUN_TOKEN", "")
    exported = os.environ.pop("DDLRUN_EXPORTED", "").split()
    keep_own(os.environ, parent, exported)
    try:
        prepare_environment(os.environ, exported)
        trouble = ""
    except LookupError as error:
        trouble = f"ddlrun: {error}\n"
    os.environ["DDLRUN_WRAPPER"] = str(os.getpid())  # so ddl_abort knows that we report its exit
    if os.environ["MPI_LOCALRANKID"] == "0":
        for words in troubles(int(os.environ["MPI_LOCALNRANKS"])):
            tell(words)
    report(token, "started")
    output = os.dup(1)
    child, pump = start([unescape(word) for word in sys.argv[1:]], token, trouble)
    status, was_told = wait(child, signals, parent, token, grace)
    ended_at = time.time()
    kill_descendants()
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS:
        tell(words_on_sigbus())
    report(token, "output", file=output)  # what has come before it is all
    os.close(output)
    code = os.waitstatus_to_exitcode(status)
    report(token, "exit" if code >= 0 else "signal", abs(code), was_told, ended_at)
    if code and not keeps_going:
        # mpiexec ends everybody at once when a rank of an MPI program goes. ddlrun, which has now
        # been told, gives the others time to end by themselves first.
        deadline = now() + END_TIMEOUT_S
        while (left := until(deadline)) > 0 and os.getppid() == parent:
            signal.sigtimedwait(signals, left)
    elif pump and token:
        # The proxy gives up the job when it has input for a rank that is gone. ddlrun ends it now.
        pump.acquire(timeout=INPUT)
    if keeps_going:
        code = 0  # so mpiexec has nothing to end the others for
    os._exit(code if code >= 0 else 128 - code)


def start_sweep(proxy: int, grace: float) -> None:
    """Starts sweep.py as nobody's child, in a session of its own and with none of our files.

    Before we become a subreaper: what is below us is ended with us.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.closerange(3, 4096)
        os.chdir("/")
        words = [sys.executable, "-I", "-S", f"{HERE}/sweep.py", str(proxy), str(grace)]
        os.execv(sys.executable, words)
    finally:
        os._exit(1)  # not worth more than the job: it goes on


def hold_copy() -> None:
    """Has a copy that -stage has made stay while we run, and the place that it is in.

    ddl-stage removes old copies, and systemd-tmpfiles old files, but nothing below such a lock.
    """
    prefix = os.path.dirname(os.path.dirname(sys.executable))  # noqa: PTH120 (so does pathlib)
    if not os.path.exists(f"{prefix}.lock"):  # noqa: PTH110
        return
    for folder in (prefix, os.path.dirname(prefix)):  # noqa: PTH120
        try:
            file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            continue  # one is at work there just now, or the disk has no locks


def tell(words: str) -> None:
    """A line of ours among the rank's own."""
    try:  # noqa: SIM105 (contextlib costs as much as the rest of this file)
        os.write(2, f"ddlrun: {words}\n".encode(errors="replace"))
    except OSError:
        pass  # nobody is left to read it


def report(
    token: str,
    word: str,
    number: int = 0,
    was_told: bool = False,
    at: "float | None" = None,
    file: int = 2,
) -> None:
    """Tells ddlrun in one write, so that it stays one piece; it takes it out of the stream.

    Words, with their numbers, are: started, input (the bytes that fit now), stopped (signal),
    continued, exit (code), signal (number); and on standard output, output: the program's has
    ended. `was_told`: somebody had asked us to end.
    """
    if token:
        text = f"\x1f{token} {word} {number} {was_told:d} {at or time.time():.6f}\n"
        try:  # noqa: SIM105 (contextlib costs as much as the rest of this file)
            os.write(file, text.encode())
        except OSError:
            pass  # nobody is left to read it


def unescape(word: str) -> str:
    """Undoes what hydra.py does to a lone ':' (for mpiexec it would begin another program)."""
    return word[1:] if word.startswith("\\") and word.strip("\\") == ":" else word


def prepare_environment(environ: "os._Environ[str]", exported: list[str]) -> None:
    """Sets all launchers' and TensorFlow's variables, binds to cores and GPUs, limits OpenMP."""
    local, n_local = int(environ["MPI_LOCALRANKID"]), int(environ["MPI_LOCALNRANKS"])
    nodes = decode_nodes(environ.pop("DDLRUN_NODES", "") or f"0x{environ['PMI_SIZE']}")
    identify(environ, nodes, environ.pop("DDLRUN_HOSTS", ""), exported)
    threads = bind(environ, local, n_local)
    environ.setdefault("OMP_NUM_THREADS", str(threads))
    cluster, tasks = environ.pop("DDLRUN_TF_CLUSTER", ""), environ.pop("DDLRUN_TF_TASKS", "")
    if cluster:  # by hand: json costs as much as the rest of this file
        kind, _, index = tasks.split(",")[int(environ["RANK"])].partition(":")
        task = f'{{"type": "{kind}", "index": {index}}}'
        environ["TF_CONFIG"] = f'{{"cluster": {cluster}, "task": {task}}}'


def keep_own(environ: "os._Environ[str]", proxy: int, exported: list[str]) -> None:
    """Takes back this host's own variables, unless -x says otherwise.

    mpiexec gives all ranks the variables of the host that it runs on; its proxy on this host has
    begun with those of srun or of the container.
    """
    try:
        with open(f"/proc/{proxy}/environ", "rb") as file:  # noqa: PTH123
            own = file.read().split(b"\0")
    except OSError:
        return
    for variable in own:
        name, _, value = os.fsdecode(variable).partition("=")
        if name in OWN and name not in exported:
            environ[name] = value


def start(command: list[str], token: str, trouble: str) -> "tuple[int, _thread.LockType | None]":
    """Forks the program, which dies when we do: its process number, and of rank 0 the pump.

    In `trouble` it ends with that and 2 instead.
    """
    wrapper, is_first = os.getpid(), os.environ["PMI_RANK"] == "0"
    # Hydra gives the others a pipe that never ends.
    reader, writer = os.pipe() if is_first else (os.open(os.devnull, os.O_RDONLY), -1)
    child = os.fork()
    if child:
        source = os.dup(0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)  # so that the program's own closing is the end of its output
        os.close(reader)
        return child, start_pump(source, writer, token) if is_first else None
    os.dup2(reader, 0)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # comes to the whole group, for us alone
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, its children should not
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    if os.getppid() != wrapper:
        os._exit(1)
    if trouble:
        os.write(2, trouble.encode(errors="replace"))
        os._exit(2)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        text = f"ddlrun: cannot start {command[0]}: {error.strerror}\n"
        os.write(2, text.encode(errors="replace"))
    os._exit(127)


def start_pump(source: int, sink: int, token: str) -> "_thread.LockType":
    """Has a thread pass on the input: a lock that is free when it has come to its end.

    mpiexec's proxy writes to `source` without waiting, and gives up the job when that pipe is full.
    So ddlrun is told here how much fits, and sends no more. Half of the pipe's size fits in any
    case: the kernel fills no page with parts of two writes that do not fit together.
    """
    done = _thread.allocate_lock()
    done.acquire()
    try:
        space = fcntl.fcntl(source, fcntl.F_GETPIPE_SZ) // 2
    except OSError:  # not a pipe
        space = 2048

    def pump() -> None:
        takes = True
        try:
            while data := os.read(source, 1 << 16):
                size = len(data)
                while takes and data:
                    try:
                        data = data[os.write(sink, data) :]
                    except OSError:  # it has closed its input, or ended
                        takes = False
                if takes:
                    report(token, "input", size)
        finally:
            os.close(sink)
            done.release()

    report(token, "input", space)
    _thread.start_new_thread(pump, ())
    return done


def wait(
    child: int, signals: "set[signal.Signals]", parent: int, token: str, grace: float
) -> "tuple[int, bool]":
    """The program's wait status, and whether it was asked to end. Then it gets `grace` seconds."""
    deadline = None
    was_signalled = False
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        if pid == child and os.WIFSTOPPED(status):
            report(token, "stopped", os.WSTOPSIG(status))
        elif pid == child and os.WIFCONTINUED(status):
            report(token, "continued")
        elif pid == child:
            # A signal that ended it has come to us as well, and may not be fetched yet.
            for got in signal.sigpending() & (signals - {signal.SIGCHLD}):
                was_signalled = True
                if pass_on(got, None, parent):
                    deadline = now() + grace
            if was_signalled:  # a shell may have ended at once, and what it ran saves
                wait_for_rest(signals, deadline or now() + grace)
            return status, deadline is not None
        elif pid:
            continue
        elif deadline is None:
            got = signal.sigwait(signals)
            if got != signal.SIGCHLD:
                was_signalled = True
                if pass_on(got, child, parent):
                    deadline = now() + grace
        elif (left := until(deadline)) > 0:
            signal.sigtimedwait(signals, left)
        else:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            return status, True


def pass_on(got: int, child: "int | None", parent: int) -> bool:
    """Passes a signal on to those who have not got it; whether it asks the program to end.

    mpiexec sends each signal to the whole process group, so the program has it already. Processes
    that have left the group get it from us, and so does the program when our parent has died: that
    SIGTERM is ours alone. SIGQUIT stands for SIGUSR2, which mpiexec does not send (see run.py): the
    program ignores it, and we translate. `child`: None when it has ended; what it left may go on.
    """
    if got == signal.SIGQUIT:
        if child is None:
            send(signal.SIGUSR2, children(os.getpid()))
        elif not send(signal.SIGUSR2, [child]):
            kill(child, signal.SIGUSR2)
        return False
    if child is not None and os.getppid() != parent:
        kill(child, got)
    send(got, strangers())
    return got != signal.SIGUSR1


def wait_for_rest(signals: "set[signal.Signals]", deadline: float) -> None:
    """Gives what the program has left the time to end by itself."""
    while (left := until(deadline)) > 0:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # one has ended
        except ChildProcessError:
            return
        signal.sigtimedwait(signals, left)


def kill_descendants() -> None:
    """Kills the processes that the program left: a subreaper inherits them, one by one."""
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):  # some live
                for pid in children(os.getpid()):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(-1, 0)
    except ChildProcessError:
        return  # none left
    except PermissionError:
        return  # it changed its user: not ours to end


if __name__ == "__main__":
    main()
