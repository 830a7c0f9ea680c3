set -euo pipefail

# Debian's tarball is upstream's tree, which has no configure script; cmake needs none.
cmake -S expat -B build -G Ninja -DCMAKE_BUILD_TYPE=None \
  -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="${HOST%%-*}" \
  -DEXPAT_BUILD_TOOLS=OFF -DEXPAT_BUILD_EXAMPLES=OFF -DEXPAT_BUILD_TESTS=OFF \
  -DEXPAT_BUILD_DOCS=OFF
cmake --build build --parallel "$CPU_COUNT"
cmake --install build
rm -r "$PREFIX/share" "$PREFIX/lib/cmake"
