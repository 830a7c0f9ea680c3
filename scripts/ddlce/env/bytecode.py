"""Python bytecode: compiled once when a release is made, linked into its clones.

The files are checked by the time of their sources, which a clone's have too. So an edit in a clone
has its effect. Python puts the real source path into code objects when it loads them, so
that tracebacks in a clone are right. Sources with the prefix inside are the exception: their
bytecode holds the prefix of the environment it was compiled in, and stays there.
"""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from ddlce.bytecheck import source_name
from ddlce.elf import read_elf
from ddlce.env.freeze import FROZEN
from ddlce.env.records import FileEntry, Record
from ddlce.env.sharing import Sharing
from ddlce.errors import WorkError
from ddlce.files import sha256_file
from ddlce.runner import Runner

JOBS = 2

#: What compileall says of a file that the system does not let it write; of one that is no Python,
#: it says other things.
UNWRITTEN = re.compile(r"^\w+Error: \[Errno (\d+)\] (.*)$", re.MULTILINE)


def compile_bytecode(
    staging: Path, final: Path, records: list[Record], runner: Runner = list
) -> int:
    """Compile every module of the packages that came without bytecode.

    Args:
        staging: the prefix on disk.
        final: the prefix it will be renamed to; compiled into tracebacks.
        records: the prefix's packages; the new files are added to them, unsaved.
        runner: for an environment of another platform.

    Returns:
        How many files were compiled. Templates and tests that are not valid Python are left.

    Raises:
        WorkError: the environment's python does not run, or not to the end.
        OSError: a file cannot be written.
    """
    tag = _python_tag(records)
    if tag is None:
        return 0
    wanted: dict[str, Record] = {}
    for record in records:
        present = {entry["_path"] for entry in record.entries}
        for name in present:
            if _ismodule_of(name) and _pyc(name, tag) not in present:
                wanted[name] = record
    if not wanted:
        return 0
    complaint = _compileall(staging, final, sorted(wanted), runner)
    compiled = [name for name in sorted(wanted) if (staging / _pyc(name, tag)).is_file()]
    if not compiled:
        raise WorkError(
            f"the environment's python cannot compile its modules: {complaint}",
            "check the package: ddlce build python",
        )
    for name in compiled:
        wanted[name].add([_entry(staging, _pyc(name, tag))])
    return len(compiled)


def _compileall(staging: Path, final: Path, names: list[str], runner: Runner) -> str:
    """Compile these files in `JOBS` processes; returns the last complaint.

    Raises:
        WorkError: a process was killed.
        OSError: a file cannot be written.
    """
    # -I -S: no user site, no .pth files, nothing but the interpreter and its library.
    # -B: what compileall itself imports would otherwise be cached with a timestamp.
    # compileall's own -j works on folders only, and would compile again what packages brought.
    command = [*_python(staging, final), "-I", "-S", "-B", "-m", "compileall", "-q"]
    command += ["--invalidation-mode", "timestamp"]
    command = runner([*command, "-s", str(staging), "-p", str(final), "-i", "-"])

    def run(part: list[str]) -> str:
        files = "".join(f"{staging / name}\n" for name in part)
        done = subprocess.run(command, input=files, text=True, capture_output=True, check=False)
        if failed := UNWRITTEN.search(done.stdout):
            raise OSError(int(failed[1]), failed[2])
        if done.returncode < 0:
            raise WorkError(
                f"the environment's python was killed by signal {-done.returncode}",
                "look for what killed it, such as a lack of memory, and do it again",
            )
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]

    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(run, (names[start::JOBS] for start in range(JOBS))))[-1]


def _python(staging: Path, final: Path) -> list[str]:
    """What starts the python of a prefix that is not yet where its files say.

    Where the prefix has its own C library, python names the loader in it, as it will be found.
    """
    program = staging / "bin" / "python"
    elf = read_elf(program.read_bytes())
    loader = PurePosixPath(elf.interpreter if elf else "")
    if loader.is_relative_to(final):
        return [str(staging / loader.relative_to(final)), str(program)]
    return [str(program)]


def link_bytecode(
    source: Path,
    target: Path,
    source_records: list[Record],
    target_records: list[Record],
    sharing: Sharing,
) -> None:
    """Give a clone the bytecode that was compiled for its source.

    Only for the packages that both have, and not for modules that contain the prefix.
    """
    by_stem = {record.stem: record for record in target_records}
    for record in source_records:
        twin = by_stem.get(record.stem)
        if twin is None:
            continue
        shared = shared_bytecode(str(source), record)
        for folder in {name.rpartition("/")[0] for name in shared}:
            (target / folder).mkdir(exist_ok=True)
        for name in shared:
            sharing.give(f"{source}/{name}", f"{target}/{name}")
        twin.add(entry for entry in record.entries if entry["_path"] in shared)


def shared_bytecode(source: str, record: Record) -> set[str]:
    """The bytecode of a package in `source` that a clone of it may have too."""
    placed = {e["_path"] for e in record.entries if e.get("prefix_placeholder")}
    names = [e["_path"] for e in record.entries if e.get("path_type") == "pyc_file"]
    # A clone's owner may have removed some. There are 10 000: list their folders, ask for none.
    folders = {name.rpartition("/")[0] for name in names}
    present = {f"{f}/{file}" for f in folders for file in _listed(f"{source}/{f}")}
    shared = {name for name in names if name in present and module_of(name) not in placed}
    if Path(source, FROZEN).exists():
        return shared
    # In a clone, Python has compiled again what its owner has edited.
    known = {e["_path"]: e.get("sha256_in_prefix") or e.get("sha256") for e in record.entries}
    return {n for n in shared if _is_linked(f"{source}/{n}") or _has(f"{source}/{n}", known[n])}


def _is_linked(file: str) -> bool:
    return os.stat(file).st_nlink > 1  # noqa: PTH116


def _has(file: str, sha256: str | None) -> bool:
    return sha256 is None or sha256_file(Path(file)) == sha256


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except FileNotFoundError:
        return []


def _python_tag(records: list[Record]) -> str | None:
    """`cpython-311` for an environment with python 3.11, None for one without python."""
    for record in records:
        if record.data.get("name") == "python":
            major, minor = str(record.data["version"]).split(".")[:2]
            return f"cpython-{major}{minor}"
    return None


def _ismodule_of(name: str) -> bool:
    return name.endswith(".py") and name.startswith("lib/python")


def _pyc(name: str, tag: str) -> str:
    path = PurePosixPath(name)
    return str(path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc")


def module_of(pyc: str) -> str:
    """The source of a compiled module, whose own name may have dots: `settings.local.py`."""
    folder, _, name = pyc.rpartition("__pycache__/")
    return f"{folder}{source_name(name)}"


def _entry(prefix: Path, name: str) -> FileEntry:
    path = prefix / name
    return {
        "_path": name,
        "path_type": "pyc_file",
        "sha256_in_prefix": sha256_file(path),
        "size_in_bytes": path.stat().st_size,
    }
