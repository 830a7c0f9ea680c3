"""What the machine is: memory, disk, glibc, GPUs, MPI, modules, namespaces."""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path

from packaging.version import Version

from ddlce.doctor.report import Check
from ddlce.engine.driver import driver_cuda
from ddlce.engine.variants import VARIANTS, glibc_floor, load_variants
from ddlce.filesystem import obstacle
from ddlce.platforms import this_platform
from ddlce.programs import ask
from ddlce.recipes import cuda_versions
from ddlce.settings import OWN_GLIBC, Settings

GB = 10**9
#: A full build keeps about this much in the cache (sources, packages, unpacked packages), and
#: an installed environment takes about this much where it cannot be hard-linked to the cache.
CACHE_GB, ROOT_GB = 15, 5
#: One link of the largest package fits; less, and the machine swaps.
MEMORY_GB = 4

#: The oldest GPU that PyTorch's wheels for a CUDA have code for, by its compute capability.
OLDEST_GPU = {12: "7.0", 13: "7.5"}

MODULE_SYSTEMS = {
    "LMOD_VERSION": "Lmod",
    "MODULES_CMD": "Environment Modules",
}


def check_machine(settings: Settings) -> list[Check]:
    """Every check that is not about a system package."""
    return [
        check_disk("disk for the cache", settings.cache, CACHE_GB, "sources and packages"),
        check_disk("disk for environments", settings.root, ROOT_GB, "installed environments"),
        check_folder("the cache", settings.cache, "programs that are built are run in it"),
        check_folder("environments", settings.root, "their programs are run from there"),
        check_memory(),
        check_glibc(settings),
        check_gpus(settings),
        check_driver(settings),
        check_mpi(),
        check_modules(),
        check_namespaces(),
    ]


def check_disk(name: str, folder: Path, least: int, why: str) -> Check:
    """Free space at `folder`, or where it will be made; `least` in GB."""
    there = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(there).free / GB
    found = f"{free:.0f} GB free at {there}"
    if free < least:
        return Check(name, "missing", f"{found}, {least} GB needed", why, "required")
    return Check(name, "ok", found, why, "required")


def check_folder(name: str, folder: Path, why: str) -> Check:
    """Whether programs can be run from `folder`, and whether it has locks."""
    problem = obstacle(folder)
    return Check(name, "missing" if problem else "ok", problem or str(folder), why, "required")


def check_memory() -> Check:
    """Memory of the machine, or of the container that this process is in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and limit.read_text().strip().isdigit():
        total = min(total, int(limit.read_text()))
    found = f"{total / GB:.0f} GB"
    why = "linking, and training in the smoke test"
    if total < MEMORY_GB * GB:
        return Check("memory", "missing", f"{found}, {MEMORY_GB} GB needed", why, "required")
    return Check("memory", "ok", found, why, "required")


def check_glibc(settings: Settings) -> Check:
    """The C library against the floor that this platform's packages declare, if they do.

    `c_stdlib_version`; on linux-ppc64le they bring their own.
    """
    name, version = platform.libc_ver()
    floor = _glibc_floor(settings)
    why = f"the packages need glibc {floor} or newer"
    if name != "glibc":
        return Check("glibc", "missing", f"{name or 'another C library'}", why, "required")
    if Version(version) < Version(floor):
        return Check("glibc", "missing", f"{version} is older than {floor}", why, "required")
    return Check("glibc", "ok", version, why, "required")


def _glibc_floor(settings: Settings) -> str:
    path = settings.repo / "recipes" / VARIANTS if settings.repo else None
    oldest = "2.17"  # that any conda package still supports
    if path is None or not path.is_file():
        return oldest
    variants = load_variants(path, this_platform())
    if OWN_GLIBC in (variants.get("c_stdlib") or []):
        return oldest
    return glibc_floor(path.parent, this_platform()) or oldest


def check_gpus(settings: Settings) -> Check:
    """NVIDIA GPUs that the driver shows, and whether the builds for CUDA have code for them."""
    why = "training and ddl on GPUs; without one everything runs on the CPU"
    query = "--query-gpu=name,driver_version,compute_cap"
    lines = _output("nvidia-smi", query, "--format=csv,noheader")
    if not lines:
        return Check("GPUs", "optional", "none", why)
    summary = f"{len(lines)}: {lines[0]}"
    offered = cuda_versions(settings, this_platform())
    least = min((OLDEST_GPU[Version(cuda).major] for cuda in offered), key=Version, default="0")
    for line in lines:
        capability = line.rpartition(",")[2].strip()
        if re.fullmatch(r"\d+[.]\d+", capability) and Version(capability) < Version(least):
            name = line.partition(",")[0]
            problem = f"{summary}; {name} has compute capability {capability}, {least} needed"
            return Check("GPUs", "optional", problem, why)
    return Check("GPUs", "ok", summary, why)


def check_driver(settings: Settings) -> Check:
    """The NVIDIA driver against the oldest CUDA that there is an environment for."""
    why = "ddl-ce-gpu; it can be built and installed without"
    driver, wanted = driver_cuda(), cuda_versions(settings, this_platform())
    if not driver:
        return Check("NVIDIA driver", "optional", "none", why)
    if wanted and Version(driver) < Version(wanted[0]):
        problem = f"for CUDA {driver}, {wanted[0]} needed: a newer driver"
        return Check("NVIDIA driver", "optional", problem, why)
    return Check("NVIDIA driver", "ok", f"for CUDA {driver}", why)


def check_mpi() -> Check:
    """A site's own MPI, which the `external` variant of the mpi package can use."""
    why = "the variant on the site's own MPI; ours comes with the environment"
    for program in ("jsrun", "mpichversion", "ompi_info", "mpiexec"):
        path = shutil.which(program)
        if path:
            lines = _output(program, "--version")
            return Check("MPI of the site", "ok", lines[0] if lines else path, why)
    return Check("MPI of the site", "optional", "none on PATH", why)


def check_modules() -> Check:
    """Lmod or Environment Modules, in this shell or installed."""
    why = "module load ddl-ce"
    for variable, name in MODULE_SYSTEMS.items():
        if os.environ.get(variable):
            version = os.environ.get("LMOD_VERSION" if name == "Lmod" else "MODULES_VERSION", "")
            return Check("module system", "ok", f"{name} {version}".strip(), why)
    for folder, name in (("lmod", "Lmod"), ("modules", "Environment Modules")):
        if Path("/usr/share", folder).is_dir():
            found = f"{name} is installed, but not set up in this shell"
            return Check("module system", "ok", found, why)
    return Check("module system", "optional", "none", why)


def check_namespaces() -> Check:
    """Whether this user may make user namespaces."""
    why = "tests that play several hosts on one machine"
    if _output("unshare", "--user", "--map-root-user", "--net", "echo", "yes") == ["yes"]:
        return Check("user namespaces", "ok", "allowed", why)
    return Check("user namespaces", "optional", "not allowed here", why)


def _output(*command: str) -> list[str]:
    """The lines that a command prints; none when it is absent, fails or hangs."""
    try:
        done = ask(command)
    except OSError:
        return []
    return done.stdout.strip().splitlines() if done.returncode == 0 else []
