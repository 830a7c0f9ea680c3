"""The first part: which packages are there, do they import, and from this environment?

Run as `python -m ddl_ce_smoke.probe` in a process of its own, it imports one package after the
other and prints a JSON line before and after each, so that a crash names the package.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddl_ce_smoke.model import Case


@dataclass(frozen=True)
class Package:
    """A package to look at.

    Attributes:
        name: of the conda package.
        module: the module to import; where it matters, the compiled one and not its front.
        distribution: its name on PyPI, if its version can be compared with conda's record.
        required: the suite fails without it; the others are looked at where they are installed.
    """

    name: str
    module: str
    distribution: str | None = None
    required: bool = False


#: The main packages of a DDL-CE environment. The suite cannot run without the required ones.
PACKAGES = (
    Package("openssl", "_ssl", required=True),
    Package("libsqlite", "_sqlite3", required=True),
    Package("libffi", "_ctypes", required=True),
    Package("xz", "_lzma", required=True),
    Package("bzip2", "_bz2", required=True),
    Package("readline", "readline"),
    Package("numpy", "numpy", "numpy", required=True),
    Package("scipy", "scipy.linalg", "scipy", required=True),
    Package("scikit-learn", "sklearn", "scikit-learn", required=True),
    Package("pytorch", "torch", "torch", required=True),
    Package("ddl", "ddl", required=True),
    Package("ddl-torch", "ddl_torch", required=True),
    Package("horovod", "horovod.torch", "horovod", required=True),
    Package("tensorflow", "tensorflow", "tensorflow", required=True),
    Package("keras", "keras", "keras", required=True),
    Package("ddl-tensorflow", "ddl_tensorflow", required=True),
    Package("lms-torch", "lms", required=True),
    Package("lms-tensorflow", "lms_tensorflow", required=True),
    Package("tensorflow-probability", "tensorflow_probability", "tensorflow-probability"),
    Package("mpi4py", "mpi4py.MPI", "mpi4py"),
    Package("matplotlib-base", "matplotlib.figure", "matplotlib", required=True),
    Package("py-rattler", "rattler", "py-rattler"),
    Package("pydantic", "pydantic", "pydantic"),
    Package("ddlce", "ddlce", "ddlce"),
)

#: Packages that the distribution has not for a machine, and that the suite does without there.
WITHOUT = {
    "ppc64le": {
        *("tensorflow", "keras", "ddl-tensorflow", "lms-tensorflow", "tensorflow-probability"),
        *("matplotlib-base", "py-rattler", "pydantic", "ddlce"),
    }
}


def exists(name: str) -> bool:
    """Whether the distribution has a package for this machine."""
    return name not in WITHOUT.get(platform.machine(), ())


@dataclass(frozen=True)
class Environment:
    """The environment under test.

    Attributes:
        prefix: its folder.
        roots: folders that its files may come from: the prefix, and in a venv the base Python's.
        recorded: version by package name, from conda-meta; empty outside a conda environment.
    """

    prefix: Path
    roots: tuple[Path, ...]
    recorded: dict[str, str]

    @classmethod
    def current(cls) -> Environment:
        """The one that this interpreter belongs to."""
        prefix = Path(sys.prefix)
        return cls(prefix, (prefix, Path(sys.base_prefix)), conda_versions(prefix))

    def owns(self, file: str | Path) -> bool:
        """Whether a file lies in the environment, symbolic links followed or not."""
        path = Path(file)
        candidates = (path, path.resolve())
        roots = {*self.roots, *(root.resolve() for root in self.roots)}
        return any(p.is_relative_to(root) for p in candidates for root in roots)


def check(
    environment: Environment, python: Sequence[str], timeout: float
) -> tuple[list[Case], dict[str, str]]:
    """Imports everything with the interpreter `python`, in at most `timeout` seconds.

    Returns:
        A case for Python, for each package and for the shared libraries; and what torch and
        mpi4py say about the machine.
    """
    owned = environment.owns(python[0])
    message = platform.python_version() if owned else f"{python[0]} is not in {environment.prefix}"
    cases = [Case("python", "passed" if owned else "failed", message=message)]
    command = [*python, "-m", __name__]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout
        )
        output, errors, ending = process.stdout, process.stderr, f"status {process.returncode}"
    except subprocess.TimeoutExpired as expired:
        output, errors = _text(expired.stdout), _text(expired.stderr)
        ending = f"not done after {timeout:.0f} s"

    importing, facts, finished = "Python's own start", {}, False
    for line in output.splitlines():
        if not line.startswith('{"probe"'):
            continue  # something that a package prints when it is imported
        entry = json.loads(line)
        if entry["probe"] == "importing":
            importing = entry["name"]
        elif entry["probe"] == "imported":
            cases.append(judge(entry, environment))
        else:
            facts, finished = entry["facts"], True
            cases.append(judge_libraries(entry["libraries"], environment))
    if not finished:
        message = f"the interpreter ended while importing {importing}: {ending}"
        cases.append(Case(importing, "failed", message=message, detail=errors[-4000:]))
    return cases, facts


def _text(data: bytes | str | None) -> str:
    return data.decode(errors="replace") if isinstance(data, bytes) else data or ""


def judge(entry: dict[str, Any], environment: Environment) -> Case:
    """The case of one package that was imported, failed to import, or is not there."""
    package = next(p for p in PACKAGES if p.name == entry["name"])
    name, module, seconds = package.name, package.module, entry["seconds"]
    recorded = environment.recorded.get(name)
    if entry["absent"] and not (package.required or recorded):
        return Case(name, "skipped", message="not installed")
    if entry["absent"]:
        return Case(name, "failed", message=f"there is no module {module}: install {name}")
    if entry["error"]:
        return Case(name, "failed", seconds, f"import {module}: {entry['error']}", entry["trace"])
    file, version = entry["file"], entry["version"]
    if file and not environment.owns(file):
        message = f"{module} comes from {file}, not from {environment.prefix}: is PYTHONPATH set?"
        return Case(name, "failed", seconds, message)
    comparable = package.distribution and recorded and version  # _ctypes has one of its own
    if comparable and version.partition("+")[0] != recorded:
        message = f"version {version} is imported, but conda-meta records {recorded}"
        return Case(name, "failed", seconds, message)
    return Case(name, "passed", seconds, recorded or version)


def judge_libraries(files: Sequence[str], environment: Environment) -> Case:
    """No shared library that the environment has may have been loaded from elsewhere."""
    shadowing = [
        f"{file} instead of {environment.prefix}/lib/{Path(file).name}"
        for file in files
        if not environment.owns(file) and (environment.prefix / "lib" / Path(file).name).exists()
    ]
    if shadowing:
        message = f"loaded {shadowing[0]}: is LD_LIBRARY_PATH set?"
        return Case("shared libraries", "failed", message=message, detail="\n".join(shadowing))
    inside = sum(environment.owns(file) for file in files)
    message = f"{inside} from the environment, {len(files) - inside} from the system"
    return Case("shared libraries", "passed", message=message, detail="\n".join(files))


def conda_versions(prefix: Path) -> dict[str, str]:
    """Version by package name, from the prefix's conda-meta; empty outside a conda environment."""
    records = [json.loads(path.read_text()) for path in (prefix / "conda-meta").glob("*.json")]
    return {record["name"]: record["version"] for record in records}


def machine_facts() -> dict[str, str]:
    """Facts about the machine for the report, from the system alone."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "host": platform.node() or "localhost",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "glibc": platform.libc_ver()[1],
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GiB",
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line for line in lines if line.startswith(("model name", "cpu\t"))]
    if not models:
        return platform.machine()
    kind, _, name = models[0].partition(":")
    # An emulator shows the file of the machine below it; on POWER, the line is called `cpu`.
    is_emulated = platform.machine() == "ppc64le" and kind.startswith("model name")
    return f"emulated on {name.strip()}" if is_emulated else name.strip()


def _import(package: Package) -> dict[str, Any]:
    """Imports one package, and returns what `judge` needs to know of it."""
    found: dict[str, Any] = {"probe": "imported", "name": package.name, "seconds": 0.0}
    if importlib.util.find_spec(package.module.partition(".")[0]) is None:
        return {**found, "absent": True}
    start = time.perf_counter()
    try:
        module = importlib.import_module(package.module)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return {**found, "absent": False, "error": message, "trace": traceback.format_exc()}
    return {
        **found,
        "seconds": time.perf_counter() - start,
        "absent": False,
        "error": None,
        "file": getattr(module, "__file__", None),
        "version": _version(package),
    }


def _version(package: Package) -> str:
    if package.distribution:
        return importlib.metadata.version(package.distribution)
    return str(getattr(sys.modules[package.module], "__version__", ""))


def _facts() -> dict[str, str]:
    """Facts about the machine that the imported packages know."""
    facts = {}
    if torch := sys.modules.get("torch"):
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        facts["gpus"] = ", ".join(names) or "none"
    if mpi := sys.modules.get("mpi4py.MPI"):
        facts["mpi"] = mpi.Get_library_version().splitlines()[0].strip("\0 ").replace("\t", " ")
    return facts


def _libraries() -> list[str]:
    """The shared libraries that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return sorted(file for file in files if ".so" in file and file.startswith("/"))


def main() -> None:
    """Imports every package and prints the outcome."""

    def say(entry: dict[str, Any]) -> None:
        print(json.dumps(entry), flush=True)

    if importlib.util.find_spec("mpi4py"):
        import mpi4py

        mpi4py.rc.initialize = False  # asking for its version needs no MPI start
    for package in (p for p in PACKAGES if exists(p.name)):
        say({"probe": "importing", "name": package.name})
        say(_import(package))
    say({"probe": "done", "facts": _facts(), "libraries": _libraries()})


if __name__ == "__main__":
    main()
