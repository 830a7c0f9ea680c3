set -euo pipefail

# Debian's security fixes, by name; a patch that does not apply exactly stops the build.
grep -v '^#' "$RECIPE_DIR/security.series" | while read -r name; do
  patch -p1 --fuzz=0 --no-backup-if-mismatch < "debian/patches/$name"
done

# `make install` compiles every module three times, with time stamps; done below, once.
sed -i 's|$(DESTDIR)$(LIBDEST)/compileall.py|-c ""|' Makefile.pre.in

# Modules whose library the base has not: named, so that the machine's headers do not decide.
disabled="_dbm _gdbm _tkinter"

# The python that helps to build one for another processor: of the same minor version, from the
# same sources, with no library but libc. It freezes modules and compiles the byte code; it is
# thrown away, so it is compiled as fast as can be.
build_python=python3.13
if [ "$BUILD" != "$HOST" ]; then
  mkdir -p native/Modules
  printf '*disabled*\n%s\n' "$disabled _bz2 _ctypes _curses _curses_panel _decimal _hashlib _lzma \
_sqlite3 _ssl _uuid readline" | tr ' ' '\n' > native/Modules/Setup.local
  (
    cd native
    unset CC CXX AR NM RANLIB STRIP READELF CPPFLAGS CFLAGS CXXFLAGS LDFLAGS HOST PKG_CONFIG_PATH
    export PKG_CONFIG_LIBDIR=/nowhere  # or it finds the other processor's libraries
    tool=$BUILD_PREFIX/bin/x86_64-conda-linux-gnu
    export CC=$tool-gcc AR=$tool-ar RANLIB=$tool-ranlib READELF=$tool-readelf
    OPT="-O1" ../configure --prefix="$PWD/nowhere" --disable-test-modules --without-ensurepip
    make -j"$CPU_COUNT"
  )
  build_python=$PWD/native/python
  # Python's configure must know that this is another processor, or it would not use the python
  # above. Then it cannot try some things, and would guess pessimistically (FNV for a hash, no
  # tzset): how they are on every Linux with glibc.
  export CONFIG_SITE=/dev/null
  export ac_cv_aligned_required=no ac_cv_buggy_getaddrinfo=no ac_cv_broken_sem_getvalue=no
  export ac_cv_broken_nice=no ac_cv_broken_poll=no ac_cv_broken_mbstowcs=no
  export ac_cv_computed_gotos=yes ac_cv_working_tzset=yes ac_cv_posix_semaphores_enabled=yes
  export ac_cv_pthread_is_default=yes ac_cv_pthread_system_supported=yes
  export ac_cv_rshift_extends_sign=yes ac_cv_wchar_t_signed=yes ac_cv_x87_double_rounding=no
  export ac_cv_file__dev_ptmx=yes ac_cv_file__dev_ptc=no
fi

mkdir -p target/Modules
printf '*disabled*\n%s\n' "$disabled" | tr ' ' '\n' > target/Modules/Setup.local
cd target
# No --enable-optimizations and no --with-lto: they cost several times the build for what is
# not where a training job spends its time.
export CXX=${CC/gcc/g++}  # only remembered, for extensions: nothing in python is C++
export OPT="-DNDEBUG -fwrapv -O2 -Wall"  # upstream's, without -g: the files are stripped
../configure --prefix="$PREFIX" --build="$BUILD" --host="$HOST" --with-build-python="$build_python" \
  --enable-shared --without-static-libpython --disable-test-modules --without-ensurepip \
  --enable-ipv6 --with-system-expat --without-system-libmpdec --with-openssl="$PREFIX"
make -j"$CPU_COUNT"
make install
cd ..

lib=$PREFIX/lib/python3.13
rm -r "$lib"/{idlelib,tkinter,turtledemo,turtle.py} "$PREFIX/share/man"
rm -r "$PREFIX"/bin/idle*
rm -rf "$lib/test"

# `python -m venv` installs this wheel, by the name that ensurepip has for it.
rm "$lib"/ensurepip/_bundled/*.whl
wheel=$(basename "$SRC_DIR"/bundled/pip-*.whl)
version=${wheel#pip-}
cp "$SRC_DIR/bundled/$wheel" "$lib/ensurepip/_bundled/"
sed -i "s/^_PIP_VERSION = .*/_PIP_VERSION = \"${version%%-*}\"/" "$lib/ensurepip/__init__.py"
grep -q "^_PIP_VERSION = \"${version%%-*}\"$" "$lib/ensurepip/__init__.py"

bash shared/finish.sh 3.13 "$build_python" "$HOST"
