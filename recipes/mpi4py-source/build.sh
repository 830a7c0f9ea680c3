#!/usr/bin/env bash
# The C source by the build machine's Cython, the module by the target's compiler.
set -euo pipefail

"$BUILD_PREFIX/bin/python" conf/cythonize.py

options=(--no-deps --no-index --disable-pip-version-check --no-cache-dir)
MPICC="$PREFIX/bin/mpicc" "$PREFIX/bin/python" -m pip wheel . --no-build-isolation "${options[@]}" \
  --wheel-dir dist
# Its byte code would carry the time of this build.
"$PREFIX/bin/python" -m pip install mpi4py --find-links dist --no-compile "${options[@]}"
"$STRIP" --strip-unneeded "$SP_DIR"/mpi4py/MPI*.so
