set -euo pipefail

# A crash on a long terminal description, and Debian's answer to CVE-2023-29491: set-uid
# programs do not read the caller's terminal descriptions (--disable-root-environ below).
for name in fix_crash_on_very_long_tc-use_clause fix-configure-root-args-option debian-env-access; do
  patch -p1 --fuzz=0 < "debian/patches/$name.diff"
done

# fix-configure-root-args-option.diff mends configure.in; the same in the generated file.
if ! grep -q 'disable-root-environ' configure; then
  echo "ncurses: configure has no --disable-root-environ" >&2
  exit 1
fi

# The few terminals of today in the prefix; every other one from the machine's database: a
# full one is 2700 small files in every environment.
terminals=ansi,dumb,linux,rxvt,rxvt-256color,rxvt-unicode,rxvt-unicode-256color,screen,\
screen-256color,tmux,tmux-256color,vt100,vt102,vt220,xterm,xterm-256color,xterm-color,xterm-mono

./configure --prefix="$PREFIX" --libdir="$PREFIX/lib" --build="$BUILD" --host="$HOST" \
  --with-build-cc="${CC_FOR_BUILD:-$CC}" \
  --with-shared --without-normal --without-debug --without-ada --without-cxx-binding \
  --without-manpages --without-tests --enable-widec --with-termlib --enable-overwrite \
  --enable-pc-files --with-pkg-config-libdir="$PREFIX/lib/pkgconfig" \
  --disable-root-environ --disable-stripping \
  --with-default-terminfo-dir="$PREFIX/share/terminfo" \
  --with-terminfo-dirs="$PREFIX/share/terminfo:/etc/terminfo:/lib/terminfo:/usr/share/terminfo"
make -j"$CPU_COUNT"
make install

cd "$PREFIX"
tic="$SRC_DIR/progs/tic"
rm -r share/terminfo lib/terminfo share/tabset
"$tic" -x -o share/terminfo -e "$terminals" "$SRC_DIR/misc/terminfo.src"

# The wide library serves both names, as with conda-forge and every distribution.
for name in ncurses tinfo form menu panel; do
  ln -s "lib${name}w.so" "lib/lib$name.so"
  ln -s "lib${name}w.so.6" "lib/lib$name.so.6"
  ln -s "${name}w.pc" "lib/pkgconfig/$name.pc"
done
rm bin/ncursesw6-config
