"""Starts ranks by MPICH's mpiexec (Hydra): by fork on this host, by ssh on others."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ddl.launch.batch import SSH, reserved_hosts, starter
from ddl.launch.errors import HostError, LaunchError
from ddl.launch.hosts import Host, is_local, parse_hosts
from ddl.launch.layout import Job
from ddl.launch.marked_stream import MarkedStream
from ddl.launch.options import Options
from ddl.launch.own import find_program
from ddl.launch.reached import common_address, own_addresses
from ddl.launch.scontrol import gres_per_host
from ddl.launch.ssh import ask
from ddl.launch.step import step_environment

WRAPPER = Path(__file__).with_name("rank.py")
ASKING = 20.0  # seconds for Slurm to tell of the job's resources
# With -disable-auto-cleanup, of a proxy that has ended, or whose host has: "[mpiexec@h0] ...".
_LEFT = re.compile(r"\[mpiexec@\S+\] going on without (\S+)")
# srun of a proxy that has failed: "srun: error: h[2-3]: tasks 1-2: Exited with exit code 2".
_GONE = re.compile(r"srun: error: (\S+): tasks? [\d,\[\]-]+: ")


class HydraLauncher:
    """Starts the ranks of a job by one foreground process, which ends when they have ended.

    PMI_RANK, PMI_SIZE, MPI_LOCALRANKID and MPI_LOCALNRANKS are set for each rank. SIGINT and
    SIGTERM to the process reach the process group of every rank. When the process dies, so do the
    ranks.

    Args:
        options: `-skipchecks` leaves the hosts alone until ranks start there.
    """

    def __init__(self, options: Options) -> None:
        self.mpiexec = find_mpiexec()
        self._is_checking = not options.skip_checks
        self._mark = f"<{os.urandom(6).hex()}:"
        self._address = ""  # that all other hosts reach; "": nobody was asked

    def reserved_hosts(self, environ: Mapping[str, str]) -> list[Host]:
        """The hosts that a batch system has reserved."""
        return reserved_hosts(environ)

    def check(self, job: Job) -> None:
        """Asks every other host by ssh, where that starts ranks, for the same installation.

        Where they lie on several networks, it asks for an address of ours, too, that all reach.

        Raises:
            HostError: one has not, or does not answer; or there is no such address.
        """
        if not self._is_checking:
            return
        remote = [host for host in job.hosts if not is_local(host)]
        way = starter(job.environment, job.hosts)
        if remote and way.name == SSH.name and re.search(r'["$`\\]', str(self.mpiexec)):
            # Hydra puts it between quotation marks.
            raise HostError(f"the path {self.mpiexec} cannot be given to other hosts' shells")
        if way != SSH:
            remote = []  # the batch system gives us its hosts; the ranks say what is missing there
        if remote and not find_program("ssh"):
            raise HostError("ssh is not installed", "Install the OpenSSH client.")
        _check_remote(remote, [Path(sys.executable), WRAPPER])
        addresses = own_addresses(job) if remote else []
        if len(addresses) > 1:
            self._address = common_address(addresses, remote)

    def command(self, job: Job) -> list[str]:
        """The mpiexec command line."""
        # -I -S: the wrapper is the standard library alone, whatever the user's environment says.
        wrapper = [sys.executable, "-I", "-S", str(WRAPPER)]
        return [*self._start(job), *wrapper, *map(escape, job.command)]

    def environment(self, job: Job) -> dict[str, str]:
        """The variables of the mpiexec process."""
        if all(is_local(host) for host in job.hosts):
            return dict(job.environment)
        way = starter(job.environment, job.hosts).name
        gres = gres_per_host(job.environment, ASKING) if way == "slurm" else {}
        goes_on = job.min_ranks is not None
        return step_environment(way, job.environment, gres, may_lose_hosts=goes_on)

    def direct_command(self, job: Job) -> list[str]:
        """The command line for a program of ours that needs no wrapper, nor any Python."""
        return [*self._start(job), *job.command]

    def _start(self, job: Job) -> list[str]:
        command = [str(self.mpiexec), "-prepend-pattern", f"{self._mark}%r>"]
        if all(is_local(host) for host in job.hosts):
            command += ["-launcher", "fork"]
        else:
            way = starter(job.environment, job.hosts)
            command += ["-launcher", way.name]
            if way.name == SSH.name:  # Hydra finds the others' programs itself
                command += ["-launcher-exec", find_program(way.program) or way.program]
            for own in [self._address] if self._address else own_addresses(job)[:1]:
                command += ["-localhost", own]
        counts = job.counts()
        in_blocks = [n for n, count in enumerate(counts) for _ in range(count)]
        if list(job.placement) == in_blocks:
            hosts = [f"{host}:{count}" for host, count in zip(job.hosts, counts, strict=True)]
            command += ["-hosts", ",".join(hosts)]
        else:
            command += ["-hosts", ",".join(job.hosts)]
            command += ["-rankmap", ",".join(map(str, job.placement))]
        if job.min_ranks is not None:  # a rank of MPI that does not end MPI is not the others' end
            command.append("-disable-auto-cleanup")
        return [*command, *job.mpi_arguments, "-n", str(job.size)]

    def demultiplexer(self) -> MarkedStream:
        """Takes apart the output that -prepend-pattern marked."""
        return MarkedStream(self._mark)

    def gone_hosts(self, line: str) -> list[str]:
        """Those where srun has lost Hydra's proxy. Hydra would wait for its word forever."""
        return gone_hosts(line)

    def left_host(self, line: str) -> str | None:
        """The host without which mpiexec goes on, if that is such a line."""
        match = _LEFT.fullmatch(line)
        return match[1] if match else None


def gone_hosts(line: str) -> list[str]:
    """The hosts of which a line of srun says that their task has ended, and not well."""
    match = _GONE.match(line)
    try:
        return [host.name for host in parse_hosts(match[1], "srun")] if match else []
    except LaunchError:  # another srun's form
        return []


def escape(word: str) -> str:
    """A lone ':' would begin another program for mpiexec; rank.py takes the backslash away."""
    return "\\" + word if word.endswith(":") and not word[:-1].strip("\\") else word


def find_mpiexec() -> Path:
    """MPICH's mpiexec: the one beside our python, else the one on PATH."""
    beside = Path(sys.executable).with_name("mpiexec")
    if beside.is_file():
        return beside
    found = find_program("mpiexec")
    if not found:
        raise LaunchError(
            "MPICH's mpiexec is neither beside this python nor on PATH",
            "Install mpich into this environment.",
        )
    about = subprocess.run([found, "--version"], capture_output=True, check=False)
    if b"HYDRA" not in about.stdout:
        raise LaunchError(f"{found} is not MPICH's", "Install mpich into this environment.")
    return Path(found)


def _check_remote(hosts: list[str], files: list[Path]) -> None:
    script = " && ".join(f"test -r {shlex.quote(str(file))}" for file in files) + " || exit 99"
    problems = []
    for answer in ask(hosts, script):
        if answer.status == 99:
            problems.append(f"{answer.host} has no {files[0]} or no {files[1]}")
        elif answer.status:
            problems.append(f"{answer.host}: {answer.error or 'ssh failed'}")
    if problems:
        raise HostError(
            "cannot use " + "; ".join(problems),
            "`ssh HOST true` must work without a password, and every host needs this environment.",
        )
