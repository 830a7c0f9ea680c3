set -euo pipefail

# Debian's tarball is upstream's tree, which has no configure script. cmake needs none, but does not
# set the names that upstream's libtool gives and every distribution ships.
sed -i 's/PROPERTIES DEFINE_SYMBOL YAML_DECLARE_EXPORT/&\n  OUTPUT_NAME yaml-0 VERSION 2.0.9 SOVERSION 2/' \
  CMakeLists.txt

cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_POLICY_VERSION_MINIMUM=3.5 \
  -DCMAKE_INSTALL_PREFIX="$PREFIX" -DINSTALL_CMAKE_DIR=lib/cmake/yaml \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="${HOST%%-*}" \
  -DBUILD_SHARED_LIBS=ON -DBUILD_TESTING=OFF
cmake --build build --parallel "$CPU_COUNT"
cmake --install build
ln -s libyaml-0.so.2 "$PREFIX/lib/libyaml.so"
rm -r "$PREFIX/lib/cmake"
