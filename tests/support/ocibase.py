"""Base images, as OCI layouts: of a few files of this system, or of a folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

SYSTEM_PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"


def libraries(*programs: str) -> set[str]:
    """The programs, and the libraries of this system that they need."""
    found = set(programs)
    for program in programs:
        for word in subprocess.check_output(["ldd", program], text=True).split():
            if word.startswith("/"):
                found.add(word)
    return found


def c_library() -> set[str]:
    """All that programs may ask of glibc, as every system has it."""
    (folder,) = {Path(path).parent for path in libraries("/bin/dash") if "/libc.so" in path}
    return {
        str(path)
        for name in ("dl", "m", "pthread", "rt", "util")
        for path in folder.glob(f"lib{name}.so.*")
    }


def put(blobs: Path, data: bytes, media: str) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    name = f"application/vnd.oci.image.{media}"
    return {"mediaType": name, "digest": f"sha256:{digest}", "size": len(data)}


def small_base(folder: Path) -> Path:
    """Write an image `1` with a shell, a C library and what this Python needs, by hand."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        python = [str(path) for path in Path(sys.base_prefix, "lib").glob("libpython3*.so*")]
        for path in sorted(libraries("/bin/dash", sys.executable, *python) | c_library()):
            tar.add(os.path.realpath(path), path)
        link = tarfile.TarInfo("bin/sh")
        link.type, link.linkname = tarfile.SYMTYPE, "dash"
        tar.addfile(link)
    return _write(folder, stream.getvalue())


def base_of(root: Path, folder: Path) -> Path:
    """Write an image `1` that is a system's root file system."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in ("bin", "etc", "lib", "lib64", "sbin", "tmp", "usr", "var"):
            if (root / name).exists():
                tar.add(root / name, name)
        for name in ("dev", "home", "proc", "root", "sys"):
            made = tarfile.TarInfo(name)
            made.type, made.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(made)
    return _write(folder, stream.getvalue())


def _write(folder: Path, plain: bytes) -> Path:
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layer = put(blobs, gzip.compress(plain, 1), "layer.v1.tar+gzip")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [SYSTEM_PATH, "LANG=C.UTF-8"], "Labels": {"vendor": "us"}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        "history": [{"created_by": "by hand"}],
    }
    manifest = {
        "schemaVersion": 2,
        "config": put(blobs, json.dumps(config).encode(), "config.v1+json"),
        "layers": [layer],
    }
    described = put(blobs, json.dumps(manifest).encode(), "manifest.v1+json")
    described["annotations"] = {"org.opencontainers.image.ref.name": "1"}
    index = {"schemaVersion": 2, "manifests": [described]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder
