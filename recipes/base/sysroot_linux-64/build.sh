# usage: build.sh FLOOR GCC: the sysroot of a glibc release, for GCC of a major version
set -euo pipefail

floor=$1 gcc=$2
triple=x86_64-linux-gnu
root=$PREFIX/x86_64-conda-linux-gnu
tool=$BUILD_PREFIX/bin/x86_64-conda-linux-gnu
export PATH="$BUILD_PREFIX/x86_64-conda-linux-gnu/gcc/bin:$PATH"
export AR=$tool-ar AS=$tool-as LD=$tool-ld NM=$tool-nm RANLIB=$tool-ranlib STRIP=$tool-strip

# The names of the C++ libraries, from Debian's own: stubs too, so that programs are not linked
# with files that the packages libgcc and libstdcxx have. That of libgomp is Debian 11's: a process
# may have an old one already, which PyTorch brings.
for package in debian-libgcc.deb debian-libstdcxx.deb debian-libgomp.deb; do
  "$AR" p "$package" data.tar.xz | tar xJ
done
"$AR" p licence.deb data.tar.xz | tar xJO ./usr/share/doc/gcc-12-base/copyright > copyright-gcc
mapfile -t libraries < <(find . -name 'libgcc_s.so.1' -o -name 'libstdc++.so.6.*' -not -name '*.py' \
  -o -name 'libgomp.so.1.*')
CC=$tool-gcc python3 -E -B "$RECIPE_DIR/scripts/sysroot.py" "$floor" "$RECIPE_DIR"/glibc-*.tar.xz \
  "$root/sysroot" "${libraries[@]}"

# The C++ headers of the floor, where GCC looks for them, relative to itself. Debian's say that
# there is all that Debian's glibc has.
bash "$RECIPE_DIR/gcc/unpack.sh" source
export CC="$tool-gcc --sysroot=$root/sysroot" CXX="$tool-g++ --sysroot=$root/sysroot -nostdinc++"
bash "$RECIPE_DIR/gcc/configure_libstdcxx.sh" "$PWD/source" "$root/gcc/include/c++/$gcc"
make -C build/libstdc++-v3/include -j"$CPU_COUNT"
for part in include libsupc++; do
  make -C "build/libstdc++-v3/$part" install-data
done
mkdir -p "$root/gcc/include/$triple/c++"
ln -s "../../c++/$gcc/$triple" "$root/gcc/include/$triple/c++/$gcc"
