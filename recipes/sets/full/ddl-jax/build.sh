set -euo pipefail

cmake -S src -B build -G Ninja \
  -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib \
  -DCMAKE_PREFIX_PATH="$PREFIX" -DCMAKE_FIND_ROOT_PATH="$PREFIX" \
  -DPython_EXECUTABLE="$PREFIX/bin/python" -DDDL_JAX_WERROR=ON
cmake --build build -j"$CPU_COUNT"
cmake --install build --strip
