"""Wheels in the form of NVIDIA's, and the tables that make packages of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.wheelfiles import make_wheel

EULA = ("License-Expression: LicenseRef-NVIDIA-Proprietary", "Home-page: https://nvidia.org")

#: conda_build_config.yaml, and a recipe that makes a package for CUDA alone.
VARIANTS = """
cuda_compiler_version: [None]
python: ["3.11.* *_cpython"]
c_stdlib_version: ["2.28"]
"""

CUDA_VERSION = """\
package: {name: cuda-version, version: "${{ cuda_compiler_version }}"}
build:
  number: 0
  string: h${{ digest }}_0
  noarch: generic
  skip: cuda_compiler_version == "None"
about: {license: MIT, license_file: LICENSE, summary: A toy., homepage: "https://example.org"}
"""


def library(folder: Path, soname: str) -> bytes:
    """A real shared library of this name."""
    folder.mkdir(exist_ok=True)
    source = folder / "library.c"
    source.write_text("int answer(void) { return 42; }")
    built = folder / soname
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", built, source]
    subprocess.run([str(word) for word in command], check=True)
    return built.read_bytes()


def toolkit_wheel(folder: Path, name: str = "nvidia-demo", *metadata: str) -> Path:
    """A wheel with a library `libdemo.so.1`, a header, a program and a static library."""
    return make_wheel(
        folder,
        name.replace("-", "_"),
        "13.0.5",
        metadata=(*EULA, *metadata),
        files={
            "nvidia/cu13/lib/libdemo.so.1": library(folder / "build", "libdemo.so.1"),
            "nvidia/cu13/lib/libdemo_static.a": b"!<arch>\n",
            "nvidia/cu13/include/demo.h": b"int answer(void);\n",
            "nvidia/cu13/bin/demo": b"#!/bin/sh\necho demo\n",
            "nvidia/cu13/.metadata/notes.txt": b"a note on the build\n",
        },
        executable=("nvidia/cu13/bin/demo",),
        tag="py3-none-manylinux_2_17_x86_64",
        module=False,
    )


def cuda12_wheel(folder: Path) -> Path:
    """A wheel in the form of CUDA 12's: a folder of its own, each a Python package."""
    return make_wheel(
        folder,
        "nvidia_demo_cu12",
        "12.8.5",
        metadata=EULA,
        files={
            "nvidia/__init__.py": b"",
            "nvidia/demo/__init__.py": b"",
            "nvidia/demo/lib/__init__.py": b"",
            "nvidia/demo/lib/libdemo.so.1": library(folder / "build", "libdemo.so.1"),
            "nvidia/demo/include/__init__.py": b"",
            "nvidia/demo/include/demo.h": b"int answer(void);\n",
        },
        tag="py3-none-manylinux_2_17_x86_64",
        module=False,
    )
