set -euo pipefail

# --without-gcc-arch: configure would tune for the build machine's processor.
./configure --prefix="$PREFIX" --libdir="$PREFIX/lib" --build="$BUILD" --host="$HOST" \
  --disable-static --disable-docs --disable-multi-os-directory --without-gcc-arch
make -j"$CPU_COUNT"
make install
rm -r "$PREFIX"/lib/*.la "$PREFIX/share"
