set -euo pipefail

# Debian's fix of bzip2recover writing through a file that someone else put in its place.
patch -p1 --fuzz=0 < debian/patches/bzip2recover-race-open-output.diff

# Upstream's makefiles know no CC and no shared program: two lines do the whole build.
objects="blocksort huffman crctable randtable compress decompress bzlib"
# shellcheck disable=SC2086 # flags and names are lists
$CC $CPPFLAGS $CFLAGS -D_FILE_OFFSET_BITS=64 -shared -Wl,-soname,libbz2.so.1.0 \
  $(printf '%s.c ' $objects) $LDFLAGS -o libbz2.so.1.0.8
ln -s libbz2.so.1.0.8 libbz2.so.1.0
ln -s libbz2.so.1.0 libbz2.so
for program in bzip2 bzip2recover; do
  # shellcheck disable=SC2086
  $CC $CPPFLAGS $CFLAGS -D_FILE_OFFSET_BITS=64 "$program.c" -L. $LDFLAGS -lbz2 -o "$program"
done

mkdir -p "$PREFIX"/{bin,lib,include}
cp -P libbz2.so* "$PREFIX/lib/"
cp bzlib.h "$PREFIX/include/"
install -m 755 bzip2 bzip2recover "$PREFIX/bin/"
ln -s bzip2 "$PREFIX/bin/bunzip2"
ln -s bzip2 "$PREFIX/bin/bzcat"
