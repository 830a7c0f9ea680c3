"""The variables by which programs learn who they are, for rank.py and for ddlrun itself.

Each launcher has variables of its own, and libraries take the first that they find. Lightning looks
for Slurm's before RANK, accelerate for PMI_RANK and Open MPI's. Variables that ddlrun has
inherited, of a batch step or of another launcher, tell of its own process, so no rank may see them.
The names of torchrun and Open MPI are set anew (WML CE's ddlrun started ranks by that), and in a
job of Slurm those that srun sets for a task. This module is used beside every rank and imports next
to nothing.
"""

from collections.abc import Mapping, MutableMapping

# Variables of ranks that another launcher has started: Hydra and other users of PMI, PMIx, Open
# MPI, MVAPICH, Spectrum MPI's jsrun, Cray's two, Flux, torchrun, and an outer ddlrun.
FOREIGN_BEGIN = (
    *("PMI_", "PMIX_", "HYDI_", "MPI_LOCAL", "DDLRUN_"),
    *("OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "OMPI_MCA_ess_", "PRTE_MCA_ess_"),
    *("MV2_COMM_WORLD_", "JSM_NAMESPACE_", "ALPS_APP_", "PALS_", "FLUX_TASK_", "TORCHELASTIC_"),
)
FOREIGN = {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"),
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
    *("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    *("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME"),
    *("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    *("OMPI_MCA_orte_hnp_uri", "OMPI_FIRST_RANKS", "MPIRUN_RANK"),
    "HYDRA_HOST_FILE",  # which mpiexec would read, though it is given hosts
}
# Variables of a task of Slurm, or of a step. Those of the job, as SLURM_JOB_NODELIST, stay.
_TASK_BEGIN = ("SLURM_STEP", "SLURM_SRUN_", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS")
_TASK = {
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_TASK_PID", "SLURM_GTIDS"),
    *("SLURM_NPROCS", "SLURM_NNODES", "SLURM_DISTRIBUTION", "SLURM_LAUNCH_NODE_IPADDR"),
}


def is_foreign(name: str) -> bool:
    """Whether this variable tells of a rank that another launcher has started."""
    is_file = name.startswith("MPIR_") and name.endswith("_FD")
    return name in FOREIGN or name.startswith(FOREIGN_BEGIN) or is_file


def is_of_a_task(name: str) -> bool:
    """Whether this variable tells of a task or step of Slurm."""
    return name in _TASK or name.startswith(_TASK_BEGIN)


def encode_nodes(placement: "tuple[int, ...]") -> str:
    """The host of each rank by its number, in runs: "0x4,1x4"."""
    runs: list[list[int]] = []
    for node in placement:
        if runs and runs[-1][0] == node:
            runs[-1][1] += 1
        else:
            runs.append([node, 1])
    return ",".join(f"{node}x{count}" for node, count in runs)


def decode_nodes(text: str) -> list[int]:
    """The host of each rank by its number."""
    nodes: list[int] = []
    for run in text.split(","):
        node, _, count = run.partition("x")
        nodes += [int(node)] * int(count)
    return nodes


def identify(
    environ: MutableMapping[str, str], nodes: list[int], hosts: str, exported: list[str]
) -> None:
    """Sets all launchers' variables to what mpiexec says of this rank.

    Args:
        environ: has PMI_RANK, PMI_SIZE, MPI_LOCALRANKID and MPI_LOCALNRANKS.
        nodes: for each rank the number of its host.
        hosts: the hosts' names with commas between.
        exported: names of variables that the user has set for the ranks: they are not removed.
    """
    rank, size = environ["PMI_RANK"], environ["PMI_SIZE"]
    local, n_local = environ["MPI_LOCALRANKID"], environ["MPI_LOCALNRANKS"]
    node = str(nodes[int(rank)])
    told = {
        **{"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": n_local},
        **{"NODE_RANK": node, "GROUP_RANK": node},
        **{"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size},
        **{"OMPI_COMM_WORLD_LOCAL_RANK": local, "OMPI_COMM_WORLD_LOCAL_SIZE": n_local},
        **{"OMPI_COMM_WORLD_NODE_RANK": local},
    }
    if "SLURM_JOB_ID" in environ:
        told |= _of_srun(nodes, rank, local, hosts)
    ours = ("PMI_", "MPI_LOCAL", "DDLRUN_")  # mpiexec's, and those that rank.py has not read yet
    for name in list(environ):
        is_stale = is_of_a_task(name) or (is_foreign(name) and not name.startswith(ours))
        if is_stale and name not in exported:
            del environ[name]
    environ.update(told)


def _of_srun(nodes: list[int], rank: str, local: str, hosts: str) -> dict[str, str]:
    """The variables that srun would set for this task of a step with all ranks."""
    node, size = nodes[int(rank)], str(len(nodes))
    counts = [0] * (max(nodes) + 1)
    for other in nodes:
        counts[other] += 1
    of_host = [str(other) for other, its_node in enumerate(nodes) if its_node == node]
    told = {
        **{"SLURM_PROCID": rank, "SLURM_LOCALID": local, "SLURM_NODEID": str(node)},
        **{"SLURM_NTASKS": size, "SLURM_NPROCS": size, "SLURM_STEP_NUM_TASKS": size},
        **{"SLURM_NNODES": str(len(counts)), "SLURM_STEP_NUM_NODES": str(len(counts))},
        **{"SLURM_STEP_NODELIST": hosts, "SLURM_GTIDS": ",".join(of_host)},
    }
    told["SLURM_TASKS_PER_NODE"] = told["SLURM_STEP_TASKS_PER_NODE"] = _in_short(counts)
    if len(set(counts)) == 1:
        told["SLURM_NTASKS_PER_NODE"] = str(counts[0])
    return told


def _in_short(counts: list[int]) -> str:
    """The counts as Slurm writes them: "4(x3),2"."""
    runs = encode_nodes(tuple(counts)).split(",")
    pairs = [run.split("x") for run in runs]
    return ",".join(f"{count}(x{times})" if times != "1" else count for count, times in pairs)


def without_foreign(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that do not tell of a rank of somebody else's."""
    return {name: value for name, value in environ.items() if not is_foreign(name)}
