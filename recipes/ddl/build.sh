set -euo pipefail

cuda=()
if [[ "${cuda_compiler_version:-None}" != None ]]; then
  # Ours are in the prefix itself; conda-forge's CUDA packages have a folder per target.
  cuda=(-DDDL_CUDA=ON "-DCMAKE_PREFIX_PATH=$PREFIX;$PREFIX/targets/x86_64-linux")
fi

# $ORIGIN: an absolute path would leave its length in the files, though not itself.
# FindMPI asks the host environment's compiler wrapper for the flags.
cmake -S src -B build -G Ninja \
  -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib \
  -DCMAKE_PREFIX_PATH="$PREFIX" -DCMAKE_FIND_ROOT_PATH="$PREFIX" \
  -DMPI_C_COMPILER="$PREFIX/bin/mpicc" -DPython_EXECUTABLE="$PREFIX/bin/python" \
  -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON -DDDL_STAGE=ON -DDDL_WERROR=ON "${cuda[@]}"
cmake --build build -j"$CPU_COUNT"
cmake --install build --strip
