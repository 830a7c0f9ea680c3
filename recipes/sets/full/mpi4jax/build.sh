set -euo pipefail

# A CUDA or oneAPI of the machine's is none of ours: its parts would need libraries that nobody has.
sed -i -e 's#/usr/local/cuda#/nonexistent#' -e 's#/opt/intel/oneapi/compiler/latest/#/nonexistent/#' setup.py

# setup.py compiles by the MPI's compiler, which calls the build's own.
export MPI4JAX_BUILD_MPICC=$PREFIX/bin/mpicxx MPICH_CXX=$CXX
options=(--no-deps --no-index --disable-pip-version-check --no-cache-dir)
"$PREFIX/bin/python" -m pip wheel . --no-build-isolation "${options[@]}" --wheel-dir dist
"$PREFIX/bin/python" -m pip install mpi4jax --find-links dist --no-compile "${options[@]}"
