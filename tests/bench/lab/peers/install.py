"""Peers from pip, each in an environment of its own, and workers compiled with their MPI."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

from bench.lab.peers.base import Unavailable

LAB = Path(__file__).parents[1]


def cache() -> Path:
    """The user's folder for peers and compiled workers."""
    base = os.environ.get("DDLCE_CACHE") or Path.home() / ".cache" / "ddl-ce"
    return Path(base).expanduser().absolute() / "bench-peers"


def pip_prefix(name: str, *more: str) -> Path:
    """An environment with the packages of `requirements/NAME.txt`; made when it is not there.

    Args:
        name: of the file.
        more: options for pip, always the same ones with one name.
    """
    wanted = LAB / "requirements" / f"{name}.txt"
    prefix = cache() / f"{name}-{_digest(wanted.read_bytes())}"
    done = prefix / "installed"
    if not done.exists():
        venv.create(prefix, clear=True)
        pip = [sys.executable, "-m", "pip", "--python", str(prefix / "bin" / "python")]
        options = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes", *more]
        _run([*pip, *options, "-r", str(wanted)], f"pip could not install {name}")
        done.touch()
    return prefix


def compile_worker(source: str, prefix: Path, mpicc: Path, *options: str) -> Path:
    """A worker compiled against the MPI that `mpicc` belongs to, and the libraries of `prefix`."""
    headers = ["worker.h", "host.h"]
    files = [LAB / "workers" / name for name in (source, *headers)]
    named = "\0".join([str(prefix), str(mpicc), *options])
    key = _digest(named.encode(), *(file.read_bytes() for file in files))
    worker = cache() / "workers" / f"{Path(source).stem}-{key}"
    if not worker.exists():
        if not mpicc.exists():
            raise Unavailable(f"{mpicc} is not there")
        worker.parent.mkdir(parents=True, exist_ok=True)
        unfinished = worker.with_suffix(f".{os.getpid()}")
        command = [str(mpicc), "-O2", "-o", str(unfinished), str(files[0]), *options]
        paths = [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"]
        _run([*command, *paths], f"{source} does not compile")
        unfinished.rename(worker)
    return worker


def _digest(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()[:10]


def _run(command: list[str], complaint: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Unavailable(f"{complaint}: {lines[-1]}")
