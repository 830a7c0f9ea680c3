set -euo pipefail

./configure --prefix="$PREFIX" --libdir="$PREFIX/lib" --build="$BUILD" --host="$HOST" \
  --disable-all-programs --enable-libuuid --disable-static --without-python --disable-nls \
  --disable-asciidoc --disable-bash-completion
make -j"$CPU_COUNT"
make install
rm -r "$PREFIX"/lib/*.la
rm -rf "$PREFIX/share"
