set -euo pipefail

# Upstream's own 8.2 patch 1: a crash on an invalid locale.
patch -p1 --fuzz=0 < debian/patches/0001-Readline-8.2-patch-1-fix-crash-when-readline-is-star.patch

./configure --prefix="$PREFIX" --libdir="$PREFIX/lib" --build="$BUILD" --host="$HOST" \
  --disable-static --disable-install-examples --with-curses --with-shared-termcap-library
# configure leaves the terminal library out of the shared library's own needs.
make -j"$CPU_COUNT" SHLIB_LIBS=-ltinfow
make install SHLIB_LIBS=-ltinfow
rm -r "$PREFIX"/share/{doc,info,man}
# readline.pc asks for `termcap`, which is a name of the machine's database of packages.
sed -i 's/^Requires.private: .*/Requires.private: tinfow/' "$PREFIX/lib/pkgconfig/readline.pc"
