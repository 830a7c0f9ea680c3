set -euo pipefail

# zlib's configure is its own: it reads CHOST, not --host.
export CHOST="$HOST"
./configure --prefix="$PREFIX" --libdir="$PREFIX/lib"
make -j"$CPU_COUNT"
make install
rm -r "$PREFIX/lib/libz.a" "$PREFIX/share/man"
rmdir "$PREFIX/share"
