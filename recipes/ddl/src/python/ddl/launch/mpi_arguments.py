"""Reads -mpiarg: words for our mpiexec, and those that public scripts have for another MPI's.

WML CE's ddlrun gave them to Spectrum MPI's or Open MPI's mpirun. Those with a counterpart here are
taken as it, those that change nothing here are dropped, and the others are errors.
"""

import shlex
from dataclasses import dataclass, field

from ddl.launch.errors import LaunchError

_TCP = {"-pami_noib", "-tcp"}
_EXPORT = "-x"
# Of GPUs: libddl finds out where a buffer is. Of marks: ddlrun marks every line with its rank.
_NEEDLESS = {
    *("-gpu", "-disable_gpu_hooks", "-disable_gdr", "-enable_gdr"),
    *("-allow-run-as-root", "-tag-output"),
}
_REFUSED = {
    "-aff": "Leave it out: ddlrun binds each rank; -rankfile says to which cores.",
    "-mca": "MPICH has no MCA parameters; its settings are variables: -x UCX_TLS=tcp,sm,self.",
    "-oversubscribe": "Leave it out: give the slots that you want, as in -H localhost:8.",
    "-report-bindings": "Leave it out, and print os.sched_getaffinity(0) in the program.",
    "-rf": "Write ddlrun -rankfile FILE.",
    "-rankfile": "Write ddlrun -rankfile FILE.",
    "-hostfile": "Write ddlrun -hostfile FILE.",
}


@dataclass(frozen=True)
class MpiArguments:
    """What -mpiarg asks for.

    Attributes:
        words: for our mpiexec.
        exports: as those of -x.
        tcp: as -tcp.
    """

    words: list[str] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)
    tcp: bool = False


def read_mpi_arguments(texts: list[str]) -> MpiArguments:
    """The meaning of all -mpiarg; LaunchError if it is wrong, or another MPI's alone."""
    try:
        rest = [word for text in texts for word in shlex.split(text)]
    except ValueError as error:
        raise LaunchError(f"-mpiarg: {error}") from None
    words: list[str] = []
    exports: list[str] = []
    tcp = False
    while rest:
        word = rest.pop(0)
        name = word.lower().replace("--", "-", 1)
        if name in _REFUSED:
            raise LaunchError(f"-mpiarg {word} is another MPI's: ours is MPICH", _REFUSED[name])
        if name == _EXPORT:
            if not rest:
                raise LaunchError(f"-mpiarg {word} needs a value", "Write -mpiarg '-x VAR'.")
            exports.append(rest.pop(0))
        elif name in _TCP:
            tcp = True
        elif name not in _NEEDLESS:
            words.append(word)
    return MpiArguments(words, exports, tcp)
