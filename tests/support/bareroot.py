"""A root with neither /usr nor a compiler: the release, glibc, and a shell where one is wanted."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

GLIBC = ("libc", "libm", "libdl", "libpthread", "librt", "libutil", "libresolv")

#: Systems have these, and wheels of programs, as cmake's, count on them.
FOR_WHEELS = ("libstdc++", "libgcc_s")
SHELL = ("bash", "sh", "sed", "expr", "cat", "dirname", "basename", "env", "rm")


def alone(
    prefix: Path,
    folder: Path,
    *command: str | Path,
    shell: bool = False,
    wheels: bool = False,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command in that root, in a folder that it may write.

    Args:
        shell: the root has one, and a few programs for it.
        wheels: the root has the libraries that wheels of programs need.
    """
    root: list[str | Path] = ["bwrap", "--unshare-all", "--die-with-parent", "--clearenv"]
    root += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/home/user"]
    root += ["--ro-bind", "/sys", "/sys"]  # UCX and hwloc ask it for devices
    files = libraries("/bin/bash") if shell else {}
    for name in SHELL if shell else ():
        program = shutil.which(name)
        assert program, name
        files |= {Path("/bin", name): Path(program), Path("/usr/bin", name): Path(program)}
        files |= libraries(program)
    files |= libraries(prefix / "bin" / "python")
    beside = next(path for path in files if path.name == "libc.so.6").parent
    for name in (*GLIBC, *FOR_WHEELS) if wheels else GLIBC:
        for path in beside.glob(f"{name}.so.*"):
            files[path] = path
    for place, file in files.items():
        if prefix not in file.parents:
            root += ["--ro-bind", file.resolve(), place]
    root += ["--ro-bind", prefix, prefix, "--bind", folder, folder]
    for name, value in {"HOME": "/home/user", **variables}.items():
        root += ["--setenv", name, value]
    return subprocess.run(
        [*root, "--chdir", str(folder), "--", *command], capture_output=True, text=True, check=False
    )


def libraries(program: str | Path) -> dict[Path, Path]:
    """What the machine's loader gives the program, and the loader itself."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    words = (word for line in listed.splitlines() for word in line.split())
    return {Path(word): Path(word) for word in words if word.startswith("/")}
