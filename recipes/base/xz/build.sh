set -euo pipefail

# Debian's security fixes, by name; a patch that does not apply exactly stops the build.
grep -v '^#' "$RECIPE_DIR/security.series" | while read -r name; do
  patch -p1 --fuzz=0 < "debian/patches/$name"
done

./configure --prefix="$PREFIX" --build="$BUILD" --host="$HOST" \
  --disable-static --disable-scripts --disable-nls --disable-doc --disable-lzmadec \
  --disable-lzmainfo
make -j"$CPU_COUNT"
make install
rm -r "$PREFIX"/lib/*.la "$PREFIX/share"
