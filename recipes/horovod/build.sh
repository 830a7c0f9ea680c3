#!/usr/bin/env bash
# Horovod for PyTorch and, where there is one, TensorFlow, with MPI and Gloo as controllers, and the operations of DDL,
# MPI and Gloo. DDL's are the default. Built with CUDA, PyTorch's tensors on GPUs have operations, too.
set -euo pipefail

frameworks=(torch tensorflow)
export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
if [[ $target_platform == linux-ppc64le ]]; then
  frameworks=(torch)
  export HOROVOD_WITHOUT_TENSORFLOW=1
else
  export HOROVOD_WITH_TENSORFLOW=1
fi
export HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITH_DDL=1
export HOROVOD_CPU_OPERATIONS=DDL
# NVIDIA's ranges for profilers: found or not by what else the machine has.
export HOROVOD_WITHOUT_NVTX=1
# Were it unset, Horovod would compile for the instructions that this machine has.
export HOROVOD_BUILD_ARCH_FLAGS=-O3

# Both frameworks ask CMake to look beside them; MPI and ddl are in the environment.
export CMAKE_PREFIX_PATH=$PREFIX
# CMake makes Makefiles; without these flags, setup.py would choose 8 jobs.
export MAKEFLAGS=-j$CPU_COUNT
# The libraries contain the names of source files in their messages.
export CXXFLAGS="${CXXFLAGS:-} -ffile-prefix-map=$PWD=horovod"

if [[ "${cuda_compiler_version:-None}" != None ]]; then
  # TensorFlow is the build for CPUs, beside PyTorch's for CUDA.
  export HOROVOD_GPU=CUDA HOROVOD_GPU_OPERATIONS=DDL HOROVOD_GPU_FRAMEWORKS=PYTORCH
  export HOROVOD_NCCL_LINK=SHARED HOROVOD_CUDA_HOME=$BUILD_PREFIX CUDA_HOME=$BUILD_PREFIX
  case $cuda_compiler_version in
    13.*) export HOROVOD_BUILD_CUDA_CC_LIST=75,80,90,100,120 ;;
    *) echo "build.sh: no architectures are known for CUDA $cuda_compiler_version" >&2; exit 1 ;;
  esac
  # The compiler is in the build prefix; headers and libraries are in the environment. NVIDIA's headers
  # of the C++ library have a folder of their own from CUDA 13 on.
  export CXXFLAGS="$CXXFLAGS -isystem $PREFIX/include/cccl"
  export CUDAFLAGS="-isystem=$PREFIX/include -isystem=$PREFIX/include/cccl -L$PREFIX/lib -cudart=shared"
fi

options=(--no-deps --no-index --disable-pip-version-check --no-cache-dir)
"$PREFIX/bin/python" -m pip wheel . --no-build-isolation "${options[@]}" --wheel-dir dist
# Its byte code would carry the time of this build.
"$PREFIX/bin/python" -m pip install horovod --find-links dist --no-compile "${options[@]}"

for framework in "${frameworks[@]}"; do
  "${STRIP:-strip}" --strip-unneeded "$SP_DIR/horovod/$framework"/*.so
done
