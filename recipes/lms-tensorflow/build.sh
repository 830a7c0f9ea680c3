set -euo pipefail

cmake -S src -B build -G Ninja \
  -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib \
  -DPython_EXECUTABLE="$PREFIX/bin/python" \
  -DLMS_TENSORFLOW_WERROR=ON
cmake --build build -j"$CPU_COUNT"
cmake --install build --strip
