"""Gives mpiexec's proxies all of a job, whatever the user's settings say of the job's steps.

Hydra starts its proxies by the batch system's own program. srun takes options from the environment,
where sbatch, sites and users have left some. By these, proxies would be bound to one CPU, see one
GPU, or wait for another step to end. So mpiexec gets an environment of its own. The ranks get back
the user's, in rank.py, which imports this file: it imports next to nothing.

Sources: srun(1) of Slurm, "input environment variables". LSF's reference, "LSB_DJOB_TASK_BIND".
"""

from collections.abc import Mapping, MutableMapping

_HELD = "DDLRUN_HELD_"  # before the names of the user's variables, while mpiexec runs
_SET = "DDLRUN_SET"  # the names of variables that are for mpiexec alone

# Slurm's variables are settings of a step, but for these. By them srun finds the job, or speaks to
# the controller. Those of the last two rows are of the hardware and the accounting. A list of hosts
# is a setting, too: in a shell that is attached to a job, the list is of the shell's step.
_BEGIN = ("SLURM_", "SLURMD_DEBUG", "SRUN_", "SBATCH_")
_KEPT = {
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_HET_SIZE", "SLURM_NODE_ALIASES", "SLURM_JWT"),
    *("SLURM_WORKING_CLUSTER", "SLURM_CLUSTER_NAME", "SLURM_CONF", "SLURM_CONF_SERVER"),
    *("SLURM_NETWORK", "SLURM_POWER", "SLURM_CPU_FREQ_REQ", "SLURM_GPU_FREQ"),
    *("SLURM_ACCTG_FREQ", "SLURM_PROFILE", "SLURM_WCKEY"),
}
_KEPT_BEGIN = ("SLURM_SACK_", "SLURM_TOPOLOGY_")
# All memory, for as long as ranks want; beside other steps; without binding, nor an MPI of srun's.
_SLURM = {
    **{"SLURM_OVERLAP": "1", "SLURM_MEM_PER_NODE": "0", "SLURM_WAIT": "0"},
    **{"SLURM_CPU_BIND": "none", "SLURM_MEM_BIND": "none", "SLURM_MPI_TYPE": "none"},
    **{"SLURM_KILL_BAD_EXIT": "0"},
}
_LSF = {"LSB_DJOB_TASK_BIND": "N"}
# ssh ends when its host has been gone for 30 s; by then mpiexec and its proxies give each other up.
_EXTRA = "HYDRA_LAUNCHER_EXTRA_ARGS"
_GIVE_UP = "-o ServerAliveInterval=10 -o ServerAliveCountMax=2"


def step_environment(
    starter: str,
    environ: Mapping[str, str],
    gres: Mapping[str, int],
    *,
    may_lose_hosts: bool = False,
) -> dict[str, str]:
    """The variables for mpiexec, where its proxies are started by this one of Hydra's ways.

    `gres` is how many of each generic resource the job has on each host. One must say: a step of a
    job with --gpus-per-task has but one for each task, and here a host's ranks are one task. Where
    a step asks for one resource, it has no other. With `may_lose_hosts`, the job goes on without a
    host.
    """
    ours = {"slurm": _SLURM, "lsf": _LSF}.get(starter, {})
    if starter == "slurm" and may_lose_hosts:
        ours = {**ours, "SLURM_NO_KILL": "set"}
    if starter == "ssh" and may_lose_hosts:
        ours = {_EXTRA: f"{environ.get(_EXTRA, '')} {_GIVE_UP}".strip()}
    if starter == "slurm" and gres:
        asked = ",".join(f"{name}:{count}" for name, count in gres.items())
        ours = {**ours, "SLURM_GRES": asked}
    environment = {}
    for name, value in environ.items():
        is_taken = name in ours or (starter == "slurm" and is_setting_of_srun(name))
        environment[_HELD + name if is_taken else name] = value
    return {**environment, **ours, **({_SET: " ".join(ours)} if ours else {})}


def is_setting_of_srun(name: str) -> bool:
    """Whether srun may take an option of a step from this variable."""
    is_kept = name in _KEPT or name.startswith(_KEPT_BEGIN) or "_HET_GROUP_" in name
    return name.startswith(_BEGIN) and not is_kept


def give_back(environ: MutableMapping[str, str]) -> None:
    """Undoes `step_environment`, for a rank."""
    for name in environ.pop(_SET, "").split():
        environ.pop(name, None)
    for name in list(environ):
        if name.startswith(_HELD):
            environ[name[len(_HELD) :]] = environ.pop(name)
