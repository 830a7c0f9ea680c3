"""Slurm in the lab: Debian's slurmctld, and a slurmd on each host, for one `with` block.

The controller runs on the first host. Racks are switches of the tree topology. A munged of this
lab's own, with a key of its own, serves all hosts. Jobs of the partition `urgent` preempt those of
`batch`, the default, which are requeued. Jobs are root's, as the lab is; what they leave
behind ends with the lab.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.lab.namespaces import LabError, wait_until
from bench.lab.network import Lab

PROGRAMS = ("slurmctld", "slurmd", "munged", "mungekey", "sbatch", "srun", "scontrol", "squeue")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GPUS = 2
"""GPUs of each host: Slurm counts them, and there is nothing behind. So has each one FPGA."""
HOSTS_TIMEOUT_S = 60.0
"""Seconds for all hosts to report to the controller."""

CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={first}({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
GresTypes=gpu,fpga
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
TopologyPlugin=topology/tree
ReturnToService=2
JobRequeue=1
KillWait=5
SlurmdTimeout=20
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
"""

Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Slurm:
    """A cluster that takes jobs.

    Attributes:
        lab: its network.
        folder: its configuration, logs and state, which all hosts see.
    """

    lab: Lab
    folder: Path

    def run(self, *command: str | Path, limit: float = 120) -> Result:
        """Run one of Slurm's commands, or a program that calls some, on the first host."""
        words = shlex.join(map(str, command))
        return subprocess.run(
            [str(self.lab.launcher), self.lab.names[0], f"cd {self.folder} && exec {words}"],
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=limit,
            check=False,
        )

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of a command."""
        home = os.environ.get("HOME", "/root")
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": PATH, "HOME": home}

    def submit(self, script: str, *options: str) -> int:
        """Submit a batch script; the job's number.

        Raises:
            LabError: Slurm refuses it.
        """
        path = self.folder / "job.sh"
        path.write_text(script)
        done = self.run("sbatch", "--parsable", *options, path)
        if done.returncode:
            raise LabError(f"sbatch: {done.stderr.strip()}")
        return int(done.stdout.strip().partition(";")[0])

    def job(self, number: int) -> dict[str, str]:
        """Slurm's facts about a job, as `JobState`, by `scontrol show job`."""
        said = self.run("scontrol", "show", "job", "--oneliner", str(number)).stdout
        pairs = (word.partition("=") for word in said.split())
        return {name: value for name, _, value in pairs}

    def wait(self, number: int, limit: float) -> dict[str, str]:
        """Wait for a job's end; its facts.

        Raises:
            LabError: it has not ended after `limit` seconds.
        """
        going = [*("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED")]
        going += ["SIGNALING", "STOPPED"]
        facts: dict[str, str] = {}

        def has_ended() -> bool:
            facts.update(self.job(number))  # nothing, where a busy slurmctld has not answered
            return facts.get("JobState", going[0]) not in going

        self.until(has_ended, limit, f"job {number}")
        return facts

    def states(self) -> dict[str, str]:
        """The state of each host, as `idle`."""
        lines = self.run("sinfo", "-N", "-h", "-o", "%N %t").stdout.split("\n")
        return dict(line.split() for line in lines if line.strip())

    def until(self, is_so: Callable[[], bool], limit: float, what: str) -> None:
        """Wait until something is so.

        Raises:
            LabError: it is not after `limit` seconds; the message begins with `what`.
        """
        if not wait_until(is_so, limit, 0.2):
            raise LabError(f"{what}: not so after {limit:g} s; {self.folder}/slurmctld.log")


def why_not() -> str:
    """Why there can be no Slurm here; "" if there can."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if missing:
        return f"{missing[0]} is not there; apt-get install slurmctld slurmd slurm-client munge"
    return ""


@contextmanager
def slurm_in(lab: Lab, cpus: int = 2) -> Iterator[Slurm]:
    """Slurm on all hosts of the lab; when the block ends, no daemon of it is left.

    Args:
        cpus: of each host, as Slurm counts them; the hosts share this machine's.

    Raises:
        LabError: a program is missing, or the hosts do not report.
    """
    if reason := why_not():
        raise LabError(reason)
    slurm = Slurm(lab, lab.folder / "slurm")
    _configure(slurm, cpus)
    _check(["mungekey", "--create", f"--keyfile={slurm.folder}/munge.key"])
    munge = [f"--{name}={slurm.folder}/munge.{name}" for name in ("socket", "pid-file", "log-file")]
    daemons: list[subprocess.Popen[bytes]] = []

    def start(host: str, *words: str | Path) -> None:
        inside = [str(lab.launcher), host, f"exec {shlex.join(map(str, words))}"]
        log = (slurm.folder / f"{Path(words[0]).name}.{host}.out").open("wb")
        with log:
            command = ["setpriv", "--pdeathsig", "KILL", *inside]
            environment = slurm.environment
            daemons.append(
                subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            )

    try:
        key, seed = f"--key-file={slurm.folder}/munge.key", f"--seed-file={slurm.folder}/munge.seed"
        start(lab.names[0], "munged", "--foreground", "--force", key, seed, *munge)
        start(lab.names[0], "slurmctld", "-D")
        for host in lab.names:
            start(host, "slurmd", "-D", "-N", host)
        ready = dict.fromkeys(lab.names, "idle")
        slurm.until(lambda: slurm.states() == ready, HOSTS_TIMEOUT_S, "the hosts of Slurm")
        yield slurm
    finally:
        lab.clear()
        for process in daemons:
            process.wait()


def _configure(slurm: Slurm, cpus: int) -> None:
    lab, folder = slurm.lab, slurm.folder
    folder.mkdir()
    for name in ("state", "spool"):
        (folder / name).mkdir()
    nodes = [
        f"NodeName={host} NodeHostname={host} NodeAddr={lab.address(host)} "
        f"CPUs={cpus} RealMemory=1000 Gres=gpu:{GPUS},fpga:1"
        for host in lab.names
    ]
    first = lab.names[0]
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            first=first, address=lab.address(first), folder=folder, nodes="\n".join(nodes)
        )
    )
    for number in range(GPUS):
        os.mknod(folder / f"gpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    (folder / "gres.conf").write_text(
        f"Name=gpu File={folder}/gpu[0-{GPUS - 1}]\nName=fpga Count=1\n"
    )
    # The hosts see no cgroups, and need none: the other version looks for them at once.
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    layout = lab.layout
    racks = range(len(layout.racks))
    switches = [
        f"SwitchName=rack{rack} Nodes={','.join(lab.names[host] for host in layout.in_rack(rack))}"
        for rack in racks
    ]
    core = f"SwitchName=core Switches={','.join(f'rack{rack}' for rack in racks)}"
    (folder / "topology.conf").write_text("\n".join([*switches, core, ""]))


def _check(command: list[str]) -> None:
    done = subprocess.run(command, env={"PATH": PATH}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{command[0]}: {done.stderr.strip()}")
