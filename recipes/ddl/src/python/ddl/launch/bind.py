"""A rank's share of the cores and GPUs of its host, as Linux tells of them, for rank.py.

Each rank's wrapper works out the shares of all ranks of its host, and takes its own. `root` is
where /sys and /proc are looked for. The wrapper runs beside every rank, so this module imports next
to nothing.

All ranks see all GPUs unless `-bind_gpus` is given: programs for DDL choose theirs by the local
rank (`torch.cuda.set_device(ddl.local_rank())`), which fails where a rank sees but one.
"""

import os

CGROUPS = ("", "/unified", "/cpu", "/cpu,cpuacct")  # of version 2, of both, and of version 1
Core = list[int]  # its CPUs: one a thread


def bind(environ: "os._Environ[str]", local: int, n_local: int) -> int:
    """Binds this process, and its GPUs if it is told to; how many threads it may keep busy."""
    return threads_of_rank(bind_cores(environ, local, n_local), n_local, cpu_quota())


def bind_cores(environ: "os._Environ[str]", local: int, n_local: int) -> int:
    """Binds this process, and its GPUs if it is told to; the number of cores that it has."""
    is_bound = environ.pop("DDLRUN_BIND", "1") == "1"
    hides_gpus = environ.pop("DDLRUN_BIND_GPUS", "0") == "1"
    gpus = visible_gpus(environ.get("CUDA_VISIBLE_DEVICES"))
    owned = gpus_of_ranks(gpus, n_local)
    slot = slot_of(environ.pop("DDLRUN_SLOTS", ""), int(environ["PMI_RANK"]))
    if slot and is_bound:
        share = cores_of_slot(slot, cores_by_socket(os.sched_getaffinity(0)))
        os.sched_setaffinity(0, {cpu for core in share for cpu in core})
        hide_gpus(environ, owned[local] if hides_gpus else [])
        return len(share)
    cores = cores_by_node(os.sched_getaffinity(0))
    wanted = nodes_of_ranks(owned) if hides_gpus or n_local >= len(gpus) else None
    share = shares(cores, n_local, wanted)[local]
    if is_bound and share:
        os.sched_setaffinity(0, {cpu for core in share for cpu in core})
    hide_gpus(environ, owned[local] if hides_gpus else [])
    everything = sum(map(len, cores.values()))
    return len(share) if is_bound and share else max(1, everything // n_local)


def hide_gpus(environ: "os._Environ[str]", owned: "list[Gpu]") -> None:
    """Has the program see these GPUs only, if there are any."""
    if owned:
        environ["CUDA_VISIBLE_DEVICES"] = ",".join(name for name, _ in owned)
        environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as we have counted


def slot_of(slots: str, rank: int) -> str:
    """The rankfile's words for this rank's cores; "" without any."""
    return slots.split(";")[rank] if slots else ""


def cores_of_slot(slot: str, sockets: list[list[Core]]) -> list[Core]:
    """The cores of a rankfile's slot, as "0:0-7", "0:*" or "0-3,6" (see rankfile.py).

    Raises:
        LookupError: this host has not so many, or not all of them are for us.
    """
    among = [core for socket in sockets for core in socket]
    found: list[Core] = []
    for piece in slot.split(","):
        socket, colon, text = piece.rpartition(":")
        try:
            among = sockets[int(socket)] if colon else among  # a socket is of what follows, too
            for number in range(len(among)) if text == "*" else numbers_of(text):
                found.append(among[number])
        except IndexError:
            sizes = " and ".join(str(len(socket)) for socket in sockets)
            raise LookupError(
                f"slot={slot}: this host's sockets have {sizes} cores for us, counted from 0"
            ) from None
    return found


def cores_by_socket(cpus: set[int], root: str = "") -> list[list[Core]]:
    """The cores that these CPUs make, by socket."""
    sockets: dict[int, list[Core]] = {}
    for cores in cores_by_node(cpus, root).values():
        for core in cores:
            folder = f"{root}/sys/devices/system/cpu/cpu{core[0]}/topology/"
            text = read(folder + "physical_package_id").strip()
            sockets.setdefault(int(text) if text.isdigit() else 0, []).append(core)
    return [sockets[number] for number in sorted(sockets)]


def shares(
    cores: dict[int, list[Core]], n_local: int, wanted: "list[int] | None"
) -> list[list[Core]]:
    """The cores of each rank of the host; empty lists if there are too few.

    `wanted` has for each rank the NUMA node of its GPUs: ranks of one node share its cores. Without
    it, or where that cannot be, each gets an equal part of all cores, node after node: so ranks
    are spread over sockets, and have neighbouring cores.
    """
    if wanted and all(len(cores.get(node, [])) >= wanted.count(node) for node in wanted):
        return [
            part(cores[node], wanted[:local].count(node), wanted.count(node))
            for local, node in enumerate(wanted)
        ]
    everything = [core for node in sorted(cores) for core in cores[node]]
    if len(everything) < n_local:
        return [[] for _ in range(n_local)]
    return [part(everything, local, n_local) for local in range(n_local)]


def part(cores: list[Core], index: int, count: int) -> list[Core]:
    """The index-th of `count` parts."""
    return cores[index * len(cores) // count : (index + 1) * len(cores) // count]


def cores_by_node(cpus: set[int], root: str = "") -> dict[int, list[Core]]:
    """The cores that these CPUs make, by NUMA node; node -1 for CPUs of which it is not told."""
    node_of = {}
    for name in names_in(f"{root}/sys/devices/system/node"):
        if name.startswith("node") and name[4:].isdigit():
            text = read(f"{root}/sys/devices/system/node/{name}/cpulist")
            node_of.update(dict.fromkeys(numbers_of(text), int(name[4:])))
    cores: dict[tuple[int, int, int], Core] = {}
    for cpu in sorted(cpus):
        folder = f"{root}/sys/devices/system/cpu/cpu{cpu}/topology/"
        node = node_of.get(cpu, -1)
        try:
            package, core = (
                int(read(folder + name)) for name in ("physical_package_id", "core_id")
            )
        except ValueError:
            package, core = -1, cpu  # not told: every CPU is a core
        cores.setdefault((node, package, core), []).append(cpu)
    nodes: dict[int, list[Core]] = {}
    for key in sorted(cores):
        nodes.setdefault(key[0], []).append(cores[key])
    return nodes


Gpu = tuple[str, int]  # as CUDA_VISIBLE_DEVICES names it, and its NUMA node or -1


def visible_gpus(said: "str | None", root: str = "") -> list[Gpu]:
    """NVIDIA's GPUs of this host: those that CUDA_VISIBLE_DEVICES names (if not None), or all."""
    folder = f"{root}/proc/driver/nvidia/gpus"
    addresses = sorted(names_in(folder))  # in the order of PCI
    names = [str(number) for number in range(len(addresses))]
    address_of = dict(zip(names, addresses))  # noqa: B905 (made for each other)
    for address in addresses:
        for line in read(f"{folder}/{address}/information").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "GPU UUID":
                address_of[value.strip()] = address
    if said is not None:
        names = named_gpus(said)
    return [(name, node_of_device(address_of.get(name, ""), root)) for name in names]


def named_gpus(said: str) -> list[str]:
    """The names in CUDA_VISIBLE_DEVICES. CUDA stops at the first that no GPU can have."""
    names: list[str] = []
    for name in said.split(","):
        if name.strip() in ("", "-1", "NoDevFiles"):  # the last is Slurm's word for none
            break
        names.append(name.strip())
    return names


def own_gpus(said: "str | None", root: str = "") -> int:
    """How many of NVIDIA's GPUs a program may use here: those that CUDA_VISIBLE_DEVICES names.

    Without it (None), those that can be opened: a cgroup may forbid some that are in /dev.
    """
    if said is not None:
        return len(named_gpus(said))
    found = 0
    for name in names_in(f"{root}/dev"):
        if name.startswith("nvidia") and name[len("nvidia") :].isdigit():
            try:
                os.close(os.open(f"{root}/dev/{name}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            except OSError:
                continue
            found += 1
    return found


def node_of_device(address: str, root: str) -> int:
    """The NUMA node that a device of PCI is near to; -1: not told."""
    try:
        return int(read(f"{root}/sys/bus/pci/devices/{address.lower()}/numa_node"))
    except ValueError:
        return -1


def gpus_of_ranks(gpus: list[Gpu], n_local: int) -> list[list[Gpu]]:
    """The GPUs of each rank of the host: a part of them, or one that it shares with others."""
    if len(gpus) >= n_local:
        bounds = [local * len(gpus) // n_local for local in range(n_local + 1)]
        return [gpus[bounds[local] : bounds[local + 1]] for local in range(n_local)]
    return [[gpus[local % len(gpus)]] if gpus else [] for local in range(n_local)]


def nodes_of_ranks(owned: list[list[Gpu]]) -> "list[int] | None":
    """The NUMA node of each rank's GPUs; None if one has none, or several."""
    nodes = [{node for _, node in gpus} for gpus in owned]
    if any(len(found) != 1 or -1 in found for found in nodes):
        return None
    return [found.pop() for found in nodes]


def numbers_of(text: str) -> list[int]:
    """The numbers of a list as "0-3,8"."""
    numbers: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.strip().partition("-")
        if first.isdigit():
            numbers += range(int(first), int(last or first) + 1)
    return numbers


def cpu_quota(root: str = "") -> "float | None":
    """The processors' time that our cgroups allow, as a number of processors; None: no limit.

    A container or a batch system may give half of a processor and still show all of them. Source:
    the kernel's documentation of cgroups, "cpu.max", and of version 1, "CFS bandwidth control".
    """
    limits = []
    for line in read(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        for folder in CGROUPS:
            # A limit holds for all below it. In a container, the path may be that of the host.
            above = path.rstrip("/")
            while True:
                limits.append(quota_of(f"{root}/sys/fs/cgroup{folder}{above}"))
                if not above:
                    break
                above = above.rpartition("/")[0]
    found = [limit for limit in limits if limit is not None]
    return min(found) if found else None


def threads_of_rank(cores: int, n_local: int, quota: "float | None") -> int:
    """How many threads a rank may keep busy: its cores, or its part of the quota; one at least."""
    return cores if quota is None else max(1, min(cores, int(quota / n_local)))


def quota_of(folder: str) -> "float | None":
    """The limit of a cgroup, of either version."""
    words = read(f"{folder}/cpu.max").split()
    if len(words) != 2:
        words = [read(f"{folder}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None  # "max", -1, or not told
    return int(words[0]) / int(words[1])


def names_in(folder: str) -> list[str]:
    """The names in a folder; none if there is no such folder."""
    try:
        return os.listdir(folder)  # noqa: PTH208 (so does pathlib)
    except OSError:
        return []


def read(path: str) -> str:
    """The text of a small file; nothing if there is none."""
    try:
        with open(path) as file:  # noqa: PTH123 (so does pathlib)
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
