"""Horovod for PyTorch on GPUs, as our recipe patches it, for the simulated CUDA."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from ddlce.smoke import clean_environment
from support.cudasim import SOURCES
from support.cudatorch import cuda_headers
from support.horovod_source import apply_patches, unpack
from support.run import ok, run

#: As recipes/horovod/build.sh has them; one architecture is enough for what never runs on a GPU.
OPERATIONS = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_DDL": "1",
    "HOROVOD_WITHOUT_NVTX": "1",
    "HOROVOD_CPU_OPERATIONS": "DDL",
    "HOROVOD_GPU": "CUDA",
    "HOROVOD_GPU_OPERATIONS": "DDL",
    "HOROVOD_GPU_FRAMEWORKS": "PYTORCH",
    "HOROVOD_NCCL_LINK": "SHARED",
    "HOROVOD_BUILD_CUDA_CC_LIST": "75",
    "HOROVOD_BUILD_ARCH_FLAGS": "-O0",
}
CONFIGURATION = "<<<[^;]*?>>>"  # of a kernel's launch


class Horovod:
    """The patched source, its module for PyTorch built in place.

    Attributes:
        source: its folder, for PYTHONPATH.
        kernels: CUDASIM_KERNELS.
        commands: the compiler's command for each file of each framework.
    """

    def __init__(self, prefix: Path, simulated: dict[str, str], folder: Path) -> None:
        """Build it.

        Args:
            prefix: the environment with MPI, ddl and TensorFlow.
            simulated: of `simulate_torch`.
            folder: an empty one.
        """
        self.source = unpack(folder)
        apply_patches(self.source)
        build = folder / "build"
        cuda, nccl = cuda_headers()
        links = _link_libraries(folder / "lib", cuda, simulated["LD_PRELOAD"].split())
        python = _write_python(folder / "python", prefix, simulated)
        headers = f"-isystem {prefix}/include -isystem {cuda}/include/cccl -isystem {nccl}"
        environment = {
            **clean_environment(prefix, os.environ),
            **OPERATIONS,
            "HOROVOD_CUDA_HOME": str(cuda),
            "CUDA_HOME": str(cuda),
            "CMAKE_PREFIX_PATH": str(prefix),
            "CMAKE_LIBRARY_PATH": str(links),
            "HOROVOD_NCCL_INCLUDE": str(nccl),
            "CXXFLAGS": f"{headers} -w",
            "CUDAFLAGS": f"-isystem={cuda}/include/cccl -L{links} -cudart=shared",
            "LDFLAGS": f"-L{links} -Wl,-rpath-link,{prefix}/lib",
            "CC": "gcc",
            "CXX": "g++",
        }
        options = [
            "-DCMAKE_BUILD_TYPE=Debug",  # with the assertions
            "-DCMAKE_CXX_FLAGS_DEBUG=",
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY_DEBUG={self.source}",
            f"-DPYTHON_EXECUTABLE={python}",
            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        ]
        if shutil.which("ccache"):
            options.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        _run(environment, "cmake", "-G", "Ninja", "-S", self.source, "-B", build, *options)
        _run(environment, "cmake", "--build", build, "-j2", "--target", "pytorch")
        entries = json.loads((build / "compile_commands.json").read_text())
        self.commands: dict[str, list[list[str]]] = {"torch": [], "tensorflow": []}
        for entry in entries:
            words = shlex.split(entry["command"])
            for framework, commands in self.commands.items():
                if f"horovod/{framework}/CMakeFiles" in entry["command"]:
                    commands.append(words)
        self.kernels = _build_kernels(self.source, cuda, folder)


def horovod_kernels(folder: Path) -> Path:
    """CUDASIM_KERNELS for a Horovod that is built: the kernels of the same source, for the host.

    Args:
        folder: an empty one.
    """
    source = unpack(folder)
    apply_patches(source)
    return _build_kernels(source, cuda_headers()[0], folder)


def _run(environment: dict[str, str], *words: str | Path) -> None:
    ok(run([str(word) for word in words], env=environment))


def _link_libraries(folder: Path, cuda: Path, libraries: list[str]) -> Path:
    """The names that the linker looks for; wheels have only those of the loader."""
    folder.mkdir()
    for name in ("cudart", "nccl"):
        real = next(path for path in libraries if f"lib{name}.so" in path)
        (folder / f"lib{name}.so").symlink_to(real)
    for archive in (cuda / "lib").glob("*.a"):
        (folder / archive.name).symlink_to(archive)
    return folder


def _write_python(script: Path, prefix: Path, simulated: dict[str, str]) -> Path:
    """The environment's Python with PyTorch for CUDA; the compilers need nothing simulated."""
    words = [f"{name}={value}" for name, value in simulated.items() if name != "PYTHONPATH"]
    command = shlex.join([*words, str(prefix / "bin" / "python")])
    path = f"PYTHONPATH={simulated['PYTHONPATH']}${{PYTHONPATH:+:$PYTHONPATH}}"  # CMake adds
    script.write_text(f'#!/bin/sh\nexec env "{path}" {command} "$@"\n')
    script.chmod(0o755)
    return script


def _build_kernels(source: Path, cuda: Path, folder: Path) -> Path:
    """Horovod's kernels for the host: without the configurations of launches they are C++."""
    kernels = source / "horovod" / "common" / "ops" / "cuda"
    text = re.sub(CONFIGURATION, "", (kernels / "cuda_kernels.cu").read_text())
    plain = folder / "kernels.inc"
    plain.write_text(f"#pragma GCC system_header\n{text}")
    made = folder / "libkernels.so"
    command = [
        *("g++", "-std=c++17", "-O1", "-fno-inline", "-fno-strict-aliasing", "-fPIC", "-shared"),
        *("-Wall", "-Wextra", "-Werror", f'-DHOROVOD_KERNELS="{plain}"', f"-iquote{kernels}"),
        *(f"-isystem{cuda}/include", f"-isystem{cuda}/include/cccl"),
        f"-isystem{source}/third_party/flatbuffers/include",
        # The program has functions of the same names, which launch kernels.
        *("-Wl,-Bsymbolic", str(SOURCES / "horovod" / "kernels.cc"), "-o", str(made)),
    ]
    subprocess.run(command, check=True)
    return made
