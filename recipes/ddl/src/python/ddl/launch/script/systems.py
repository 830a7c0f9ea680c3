"""The systems that a batch script can be for: what each takes, and how a job is submitted.

Sources: Slurm's documentation of sbatch; LSF 10.1's of bsub; PBS Professional's of qsub; the
Kubeflow MPI operator's of MPIJob and Kubeflow Trainer's of TrainJob.
"""

import re
from dataclasses import dataclass

from ddl.launch.errors import LaunchError


@dataclass(frozen=True)
class System:
    """A batch system.

    Attributes:
        name: its value of `-script`.
        title: as messages name it.
        refused: options that it has no counterpart for, each with the reason and a remedy.
        submit: the program that takes a script from standard input, and its arguments.
        number: finds the job's number in what that program prints.
        is_manifest: a Kubernetes manifest, not a shell script.
    """

    name: str
    title: str
    refused: dict[str, str]
    submit: tuple[str, ...]
    number: re.Pattern[str]
    is_manifest: bool = False


_NO_IMAGE = {"image": "Only mpijob and trainjob run containers."}
_MANIFEST = {
    "account": "Kubernetes accounts by namespace: kubectl config set-context --current.",
    "module": "The image has the release: give -image.",
    "overlay": "The image has all packages: install them there.",
    "signal": "Kubernetes sends SIGTERM before the end, and that ends the ranks: leave it out.",
}

SYSTEMS = {
    system.name: system
    for system in (
        System(
            *("slurm", "Slurm", _NO_IMAGE, ("sbatch", "--parsable")),
            number=re.compile(r"^(\d+)(?:;\S+)?$", re.M),
        ),
        System(
            *("lsf", "LSF", _NO_IMAGE, ("bsub",)),
            number=re.compile(r"^Job <(\d+)> is submitted", re.M),
        ),
        System(
            "pbs",
            "PBS",
            _NO_IMAGE | {"signal": "PBS sends no signal before the end: save at intervals."},
            ("qsub",),
            number=re.compile(r"^(\d+(?:\[\])?(?:\.\S+)?)$", re.M),
        ),
        System(
            *("mpijob", "Kubernetes", _MANIFEST, ("kubectl", "apply", "-o", "name", "-f", "-")),
            number=re.compile(r"^(mpijob\.kubeflow\.org/\S+)$", re.M),
            is_manifest=True,
        ),
        System(
            "trainjob",
            "Kubernetes",
            _MANIFEST | {"queue": "A TrainJob names no queue."},
            ("kubectl", "apply", "-o", "name", "-f", "-"),
            number=re.compile(r"^(trainjob\.trainer\.kubeflow\.org/\S+)$", re.M),
            is_manifest=True,
        ),
    )
}


def system_of(name: str) -> System:
    """The system of `-script NAME`; LaunchError: there is none."""
    if name not in SYSTEMS:
        raise LaunchError(
            f"-script {name}: there is no such batch system", f"Write one of {', '.join(SYSTEMS)}."
        )
    return SYSTEMS[name]
