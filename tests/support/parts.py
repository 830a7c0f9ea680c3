"""The parts of the project, and the tests that belong to each: `make test PART=ddl`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath

#: Part → names of test files, without `test_` and `.py`; a file belongs to the first that fits.
PARTS: dict[str, tuple[str, ...]] = {
    "docs": ("describe", "docs*", "help", "howto_*", "parts", "prose", "readme*", "structure"),
    "power": (
        *(
            "*ppc64le",
            "aarch64",
            "cross",
            "debs_*",
            "emulate*",
            "plan_cuda_power",
            "platforms",
            "power_*",
            "pytorch_nocuda",
        ),
        "sources_debs",
    ),
    "bench": ("bench_*",),
    "smoke": ("parameter_server", "report", "smoke_*"),
    "frameworks": ("compile_*", "horovod_*", "import_hook", "jax", "keras_hub", "rapids"),
    "ddl": (
        *(
            "batch_*",
            "companions",
            "container",
            "cuda_*",
            "torch_simulated",
            "lms_bound",
            "lms_configurations",
            "lms_random",
            "ddl_torch_mutations",
            "gpu_*",
            "external_mpi",
            "guide_built",
            "lab_*",
            "libddl_*",
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
        *(
            "patches",
            "pip_prefix",
            "recipes",
            "repack",
            "settings",
            "sources_*",
            "sysroot",
            "wheelfile",
            "wheels_*",
        ),
        "yamltext",
        *("doctor", "engine_worker", "other_machine"),
    ),
    "site": (
        *(
            "advisories*",
            "bundle*",
            "candidate",
            "dist*",
            "env*",
            "install",
            "jupyterlab",
            "kernel",
            "killed",
            "lock_diff*",
            "module*",
            "notebooks",
            "oci",
            "oci_run",
            "odd_paths",
            "overlay_*",
            "package_cache",
            "release*",
            "publish*",
            "sbom*",
            "serve*",
            "several_admins",
            "signed*",
            "stock_conda",
            "trust*",
            "user_path",
            "userlands",
            "glibcnames",
            "wanted_packages",
        ),
    ),
}

#: The tests of recipes, which one file runs: the beginning of a recipe's name → part.
RECIPES = {
    "lms-": "lms",
    "ddl-": "frameworks",
    "horovod": "frameworks",
    "private-caches": "frameworks",
}
RECIPES_FILE = "recipe_tests_built"

NAMES = (*PARTS, "lms")


def part_of(test: str) -> str | None:
    """The part that a test belongs to.

    Args:
        test: pytest's name of it, `tests/unit/test_plan.py::test_x[case]`, or of its file.
    """
    file, _, case = test.partition("::")
    name = PurePosixPath(file).stem.removeprefix("test_")
    if name == RECIPES_FILE:
        recipe = case.partition("[")[2]
        return next((part for start, part in RECIPES.items() if recipe.startswith(start)), "ddl")
    for part, patterns in PARTS.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            return part
    return None
