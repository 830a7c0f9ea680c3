"""The parts of the project, and the tests that belong to each: `make test PART=ddl`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath

#: Part → names of test files, without `test_` and `.py`; a file belongs to the first that fits.
PARTS: dict[str, tuple[str, ...]] = {
    "docs": ("describe", "docs*", "help", "howto_*", "parts", "prose", "structure"),
    "power": (
        *("*ppc64le", "cross", "debs_*", "emulate*", "plan_cuda_power", "platforms", "power_*"),
        "sources_debs",
    ),
    "bench": ("bench_*",),
    "smoke": ("parameter_server", "report", "smoke_*"),
    "frameworks": ("compile_*", "horovod_*", "jax", "rapids"),
    "ddl": (
        *(
            "batch_*",
            "container",
            "cuda_*",
            "torch_simulated",
            "lms_bound",
            "ddl_torch_mutations",
            "gpu_*",
            "external_mpi",
            "guide_built",
            "lab_*",
            "libddl_source",
            "odd_machines",
            "one_value",
            "open_mpi",
        ),
        "sanitizers",
    ),
    "builder": (
        *(
            "audit*",
            "bootstrap",
            "build*",
            "catalogue",
            "channel*",
            "distributions",
            "elf",
            "fetch*",
            "files",
            "index",
        ),
        *(
            "hostile_folder",
            "lint",
            "manifest",
            "nvidia_*",
            "obstructed_paths",
            "outdated",
            "ownership",
            "plan*",
            "program",
        ),
        *("recipes", "repack", "settings", "sources_*", "sysroot", "wheelfile", "wheels_*"),
        "yamltext",
        *("doctor", "engine_worker"),
    ),
    "site": (
        *(
            "advisories",
            "bundle*",
            "candidate",
            "dist*",
            "env*",
            "install",
            "jupyterlab",
            "kernel",
            "killed",
            "lock_diff",
            "module*",
            "notebooks",
            "odd_paths",
            "overlay_*",
            "package_cache",
            "release",
