set -euo pipefail

# Debian's security fixes, by name; a patch that does not apply exactly stops the build.
grep -v '^#' "$RECIPE_DIR/security.series" | while read -r name; do
  patch -p1 --fuzz=0 --no-backup-if-mismatch < "debian/patches/$name"
done
patch -p1 --fuzz=0 < "$RECIPE_DIR/patches/pyexpat-internal-header.patch"

# Modules whose library the base has not, or that are of another time: named, so that the
# machine's headers do not decide.
cat > Modules/Setup.local << 'EOF'
*disabled*
_crypt
_dbm
_gdbm
_tkinter
nis
ossaudiodev
spwd
EOF

# It adds folders of the machine to every extension, Debian's multiarch ones among them: headers of
# another glibc than the sysroot's.
machines=(-e 's/self\.add_multiarch_paths()/pass/'
  -e "s/add_dir_to_list(self\.compiler\.[a-z]*_dirs, '\/usr\/local\/[a-z]*')/pass/"
  -e "s/curses_includes\.append('\/usr\/include\/ncursesw')/pass/"
  -e "s/library_dirs=\\['\\/usr\\/lib\\/termcap'\\],/library_dirs=[],/")
sed "${machines[@]}" setup.py > setup.new
test "$(diff setup.py setup.new | grep -c '^>')" -eq 5
mv setup.new setup.py
# The same of its configure script, whose every question about curses the compiler would refuse.
grep -q ' -I/usr/include/ncursesw"$' configure
sed -i 's| -I/usr/include/ncursesw"$|"|' configure

# `make install` compiles every module three times, with time stamps; done below, once.
sed -i 's|$(DESTDIR)$(LIBDEST)/compileall.py|-c ""|' Makefile.pre.in

# Its configure script would try semaphores in /dev/shm, which another user's build may not write.
export ac_cv_posix_semaphores_enabled=yes ac_cv_broken_sem_getvalue=no

# No --enable-optimizations and no --with-lto: they cost several times the build for what is
# not where a training job spends its time.
export OPT="-DNDEBUG -fwrapv -O2 -Wall"  # upstream's, without -g: the files are stripped
./configure --prefix="$PREFIX" --build="$BUILD" --host="$HOST" \
  --enable-shared --without-static-libpython --disable-test-modules --without-ensurepip \
  --enable-ipv6 --with-system-ffi --with-system-expat --with-openssl="$PREFIX"
make -j"$CPU_COUNT"
make install

lib=$PREFIX/lib/python3.11
rm -r "$lib"/{idlelib,lib2to3,tkinter,turtledemo,turtle.py} "$PREFIX/share/man"
rm -r "$PREFIX"/bin/{2to3*,idle*}
rm -rf "$lib/test"

# `python -m venv` installs these two wheels, by the names that ensurepip has for them.
rm "$lib"/ensurepip/_bundled/*.whl
for name in pip setuptools; do
  wheel=$(basename "$SRC_DIR"/bundled/$name-*.whl)
  version=${wheel#"$name"-}
  cp "$SRC_DIR/bundled/$wheel" "$lib/ensurepip/_bundled/"
  sed -i "s/^_${name^^}_VERSION = .*/_${name^^}_VERSION = \"${version%%-*}\"/" "$lib/ensurepip/__init__.py"
done
bash "$RECIPE_DIR/finish.sh" 3.11 "$PREFIX/bin/python3.11" x86_64-linux-gnu
