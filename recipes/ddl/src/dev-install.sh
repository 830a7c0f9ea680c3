#!/bin/sh
# Builds the library and installs it into a virtual environment that has mpich, nanobind and numpy:
#   python3 -m venv V && V/bin/pip install mpich nanobind numpy pytest && ./dev-install.sh V
# Further arguments go to CMake, e.g. -DDDL_TESTS=ON. The build folder is V/../build-ddl.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
venv=$(CDPATH='' cd -- "$1" && pwd)
shift
build=$(dirname -- "$venv")/build-ddl
cmake -S "$here" -B "$build" -G Ninja --log-level=WARNING \
  -DCMAKE_INSTALL_PREFIX="$venv" -DCMAKE_INSTALL_LIBDIR=lib -DDDL_WERROR=ON \
  -DMPI_C_COMPILER="$venv/bin/mpicc" -DPython_EXECUTABLE="$venv/bin/python" "$@"
cmake --build "$build" -j2
cmake --install "$build" >"$build/install.log"
