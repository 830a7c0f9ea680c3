set -euo pipefail

# Debian's security fixes, by name; a patch that does not apply exactly stops the build.
grep -v '^#' "$RECIPE_DIR/security.series" | while read -r name; do
  patch -p1 --fuzz=0 < "debian/patches/$name"
done

# The patches ask `#if XML_DTD == 1`, which is what configure defines; cmake leaves it empty.
sed -i 's/^#cmakedefine XML_DTD$/& 1/' expat/expat_config.h.cmake

# Debian's tarball is upstream's tree, which has no configure script; cmake needs none.
cmake -S expat -B build -G Ninja -DCMAKE_BUILD_TYPE=None \
  -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="${HOST%%-*}" \
  -DEXPAT_BUILD_TOOLS=OFF -DEXPAT_BUILD_EXAMPLES=OFF -DEXPAT_BUILD_TESTS=OFF \
  -DEXPAT_BUILD_DOCS=OFF
cmake --build build --parallel "$CPU_COUNT"
cmake --install build
rm -r "$PREFIX/share" "$PREFIX/lib/cmake"
