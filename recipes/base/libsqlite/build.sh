set -euo pipefail

# Debian's security fixes, by name; a patch that does not apply exactly stops the build.
grep -v '^#' "$RECIPE_DIR/security.series" | while read -r name; do
  patch -p1 --fuzz=0 < "debian/patches/$name"
done

# tclsh puts the one big source file together. --disable-tcl is the binding
# for Tcl programs; the shell is not built (conda-forge has it in the package `sqlite`).
./configure --prefix="$PREFIX" --libdir="$PREFIX/lib" --build="$BUILD" --host="$HOST" \
  --disable-static --disable-tcl --disable-readline --enable-threadsafe --enable-fts5 \
  CPPFLAGS="$CPPFLAGS -DSQLITE_ENABLE_COLUMN_METADATA -DSQLITE_ENABLE_MATH_FUNCTIONS \
-DSQLITE_ENABLE_FTS3 -DSQLITE_ENABLE_FTS4 -DSQLITE_ENABLE_RTREE -DSQLITE_ENABLE_DBSTAT_VTAB \
-DSQLITE_ENABLE_UNLOCK_NOTIFY -DSQLITE_SECURE_DELETE -DSQLITE_MAX_VARIABLE_NUMBER=250000"
make -j"$CPU_COUNT" libsqlite3.la sqlite3.pc
make lib_install
rm "$PREFIX/lib/libsqlite3.la"
mkdir -p "$PREFIX"/{include,lib/pkgconfig}
cp sqlite3.h src/sqlite3ext.h "$PREFIX/include/"
cp sqlite3.pc "$PREFIX/lib/pkgconfig/"
