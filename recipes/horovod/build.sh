#!/usr/bin/env bash
# Horovod for PyTorch and, where there is one, TensorFlow, with MPI and Gloo as controllers, and the operations of DDL,
# MPI and Gloo. DDL's are the default.
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
# Were it unset, Horovod would compile for the instructions that this machine has.
export HOROVOD_BUILD_ARCH_FLAGS=-O3

# Both frameworks ask CMake to look beside them; MPI and ddl are in the environment.
export CMAKE_PREFIX_PATH=$PREFIX
# CMake makes Makefiles; without these flags, setup.py would choose 8 jobs.
export MAKEFLAGS=-j$CPU_COUNT
# The libraries contain the names of source files in their messages.
export CXXFLAGS="${CXXFLAGS:-} -ffile-prefix-map=$PWD=horovod"

options=(--no-deps --no-index --disable-pip-version-check --no-cache-dir)
"$PREFIX/bin/python" -m pip wheel . --no-build-isolation "${options[@]}" --wheel-dir dist
# Its byte code would carry the time of this build.
"$PREFIX/bin/python" -m pip install horovod --find-links dist --no-compile "${options[@]}"

for framework in "${frameworks[@]}"; do
  "${STRIP:-strip}" --strip-unneeded "$SP_DIR/horovod/$framework"/*.so
done
