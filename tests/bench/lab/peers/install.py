"""Workers compiled with a peer's MPI."""

from __future__ import annotations

import os
from pathlib import Path

from support.pip import Unavailable, cache, digest_of, run_or_complain

LAB = Path(__file__).parents[1]


def compile_worker(source: str, prefix: Path, mpicc: Path, *options: str) -> Path:
    """A worker compiled against the MPI that `mpicc` belongs to, and the libraries of `prefix`."""
    headers = ["worker.h", "host.h"]
    files = [LAB / "workers" / name for name in (source, *headers)]
    named = "\0".join([str(prefix), str(mpicc), *options])
    key = digest_of(named.encode(), *(file.read_bytes() for file in files))
    worker = cache() / "workers" / f"{Path(source).stem}-{key}"
    if not worker.exists():
        if not mpicc.exists():
            raise Unavailable(f"{mpicc} is not there")
        worker.parent.mkdir(parents=True, exist_ok=True)
        unfinished = worker.with_suffix(f".{os.getpid()}")
        command = [str(mpicc), "-O2", "-o", str(unfinished), str(files[0]), *options]
        paths = [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"]
        run_or_complain([*command, *paths], f"{source} does not compile")
        unfinished.rename(worker)
    return worker
