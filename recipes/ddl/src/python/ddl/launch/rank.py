"""Runs on every host around one rank: `python -I -S rank.py PROGRAM [ARGUMENTS]`.

It gives the program its place (variables, cores), tells ddlrun through its stderr how the
program ended, and sees to it that nothing the program started outlives it. It runs beside every
rank, so it imports next to nothing.
"""

import ctypes
import os
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (so does pathlib)
sys.path.append(HERE)  # -I leaves it out
from bind import bind  # type: ignore[import-not-found]  # noqa: E402

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# What a host is told of itself: its place (see place.h), and the GPUs that the job may use there.
OWN = ("DDL_PLACE", "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN", "CUDA_VISIBLE_DEVICES")
GRACE = 2.0  # seconds between SIGTERM and SIGKILL
PATIENCE = 30.0  # seconds that a rank which has ended waits for mpiexec to end it

_prctl = ctypes.CDLL(None).prctl


def main() -> None:
    """Runs the command, reports its end and ends in the same way."""
    parent = os.getppid()
    if os.environ["MPI_LOCALRANKID"] == "0":
        start_sweep(parent)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Blocked from here on, and fetched by sigtimedwait: no signal can fall between two steps.
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
    # SIGUSR1 is for the program alone, and comes to the whole process group (see run.py).
    signal.pthread_sigmask(signal.SIG_BLOCK, signals | {signal.SIGUSR1})
    if os.getppid() != parent:
        os._exit(1)
    token = os.environ.pop("DDLRUN_TOKEN", "")
    keep_own(os.environ, parent)
    prepare_environment(os.environ)
    os.environ["DDLRUN_WRAPPER"] = str(os.getpid())  # so ddl_abort knows that we report its exit
    report(token, "started")
    child = start([unescape(word) for word in sys.argv[1:]])
    status = wait(child, signals, parent)
    kill_descendants()
    code = os.waitstatus_to_exitcode(status)
    report(token, f"exit {code}" if code >= 0 else f"signal {-code}")
    if code:
        # mpiexec ends everybody at once when a rank of an MPI program goes. ddlrun, which has now
        # been told, gives the others time to end by themselves first.
        deadline = time.monotonic() + PATIENCE
        while (left := deadline - time.monotonic()) > 0:
            signal.sigtimedwait(signals, left)
    os._exit(code if code >= 0 else 128 - code)


def start_sweep(proxy: int) -> None:
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
        words = [sys.executable, "-I", "-S", f"{HERE}/sweep.py", str(proxy)]
        os.execv(sys.executable, words)
    finally:
        os._exit(1)  # not worth more than the job: it goes on


def report(token: str, text: str) -> None:
    """One write, so that it stays one piece; ddlrun takes it out of the stream."""
    if token:
        try:  # noqa: SIM105 (contextlib costs as much as the rest of this file)
            os.write(2, f"\x1f{token} {text}\n".encode())
        except OSError:
            pass  # nobody is left to read it


def unescape(word: str) -> str:
    """Undoes what hydra.py does to a lone ':' (for mpiexec it would begin another program)."""
    return word[1:] if word.startswith("\\") and word.strip("\\") == ":" else word


def prepare_environment(environ: "os._Environ[str]") -> None:
    """Sets torch's and TensorFlow's variables, binds to cores and GPUs, limits OpenMP."""
    local, n_local = int(environ["MPI_LOCALRANKID"]), int(environ["MPI_LOCALNRANKS"])
    environ["RANK"], environ["WORLD_SIZE"] = environ["PMI_RANK"], environ["PMI_SIZE"]
    environ["LOCAL_RANK"], environ["LOCAL_WORLD_SIZE"] = str(local), str(n_local)
    cores = bind(environ, local, n_local)
    environ.setdefault("OMP_NUM_THREADS", str(cores))
    cluster, tasks = environ.pop("DDLRUN_TF_CLUSTER", ""), environ.pop("DDLRUN_TF_TASKS", "")
    if cluster:  # by hand: json costs as much as the rest of this file
        kind, _, index = tasks.split(",")[int(environ["RANK"])].partition(":")
        task = f'{{"type": "{kind}", "index": {index}}}'
        environ["TF_CONFIG"] = f'{{"cluster": {cluster}, "task": {task}}}'


def keep_own(environ: "os._Environ[str]", proxy: int) -> None:
    """Takes back what this host was told of itself, unless -x says otherwise.

    mpiexec gives all ranks the variables of the host that it runs on; its proxy on this host has
    begun with those of srun or of the container.
    """
    exported = environ.pop("DDLRUN_EXPORTED", "").split()
    try:
        with open(f"/proc/{proxy}/environ", "rb") as file:  # noqa: PTH123
            own = file.read().split(b"\0")
    except OSError:
        return
    for variable in own:
        name, _, value = os.fsdecode(variable).partition("=")
        if name in OWN and name not in exported:
            environ[name] = value


def start(command: list[str]) -> int:
    """Forks the program; its process number. It dies when we do."""
    wrapper = os.getpid()
    child = os.fork()
    if child:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)  # so that the program's own closing is the end of its output
        return child
    if os.environ["RANK"] != "0":  # Hydra gives them a pipe that never ends
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, its children should not
    if os.getppid() != wrapper:
        os._exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        text = f"ddlrun: cannot start {command[0]}: {error.strerror}\n"
        os.write(2, text.encode(errors="replace"))
    os._exit(127)


def wait(child: int, signals: "set[signal.Signals]", parent: int) -> int:
    """The program's wait status. On SIGTERM it gets GRACE seconds to end.

    mpiexec sends each signal to the whole process group, so the program has it already; only the
    SIGTERM that tells us that our parent died is ours alone and is passed on.
    """
    deadline = None
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return status
        if pid:
            continue
        if deadline is None:
            got = signal.sigwait(signals)
            if got != signal.SIGCHLD:
                deadline = time.monotonic() + GRACE
                if os.getppid() != parent:
                    os.kill(child, signal.SIGTERM)
        elif (left := deadline - time.monotonic()) > 0:
            signal.sigtimedwait(signals, left)
        else:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            return status


def kill_descendants() -> None:
    """Kills what the program left behind: as a subreaper we inherit it, one by one."""
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):  # some live
                for pid in children():
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(-1, 0)
    except ChildProcessError:
        return  # none left
    except PermissionError:
        return  # it changed its user: not ours to end


def children() -> list[int]:
    """Our own children, living or dead."""
    mine = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/stat") as file:  # noqa: PTH123
                    parent = file.read().rpartition(")")[2].split()[1]
            except OSError:
                continue  # it has just ended
            if int(parent) == os.getpid():
                mine.append(int(entry.name))
    return mine


if __name__ == "__main__":
    main()
