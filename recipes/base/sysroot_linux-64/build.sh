# usage: build.sh FLOOR GCC: the sysroot of a glibc release, for GCC of a major version
set -euo pipefail

floor=$1 gcc=$2
triple=x86_64-linux-gnu
root=$PREFIX/x86_64-conda-linux-gnu

# The names of the C++ libraries, from Debian's own: stubs too, so that programs are not linked
# with files that the packages libgcc and libstdcxx have.
for package in debian-libgcc.deb debian-libstdcxx.deb; do
  ar p "$package" data.tar.xz | tar xJ
done
ar p licence.deb data.tar.xz | tar xJO ./usr/share/doc/gcc-12-base/copyright > copyright-gcc
mapfile -t libraries < <(find . -name 'libgcc_s.so.1' -o -name 'libstdc++.so.6.*' -not -name '*.py')
python3 -E -B "$RECIPE_DIR/scripts/sysroot.py" "$floor" "$RECIPE_DIR"/glibc-*.tar.xz \
  "$root/sysroot" "${libraries[@]}"
headers=2.$(sed -n 's/^#define\s\+__GLIBC_MINOR__\s\+//p' "$root/sysroot/usr/include/features.h")

fill() { # TEMPLATE [TOOL VARIABLE OPTIONS]
  sed -e "s/@TRIPLE@/$triple/g" -e "s/@PLATFORM@/linux-64/g" -e "s/@VERSION@/$floor/g" \
    -e "s/@HEADERS@/$headers/g" \
    -e "s/@GCC@/$gcc/g" -e "s/@TOOL@/${2-}/g" -e "s/@VARIABLE@/${3-}/g" -e "s/@OPTIONS@/${4-}/g" \
    "$RECIPE_DIR/activate/$1"
}
mkdir -p "$PREFIX"/bin "$PREFIX"/etc/conda/{activate,deactivate}.d
fill wrapper gcc DDLCE_GCC > "$PREFIX/bin/$triple-gcc"
fill wrapper g++ DDLCE_GXX -nostdinc++ > "$PREFIX/bin/$triple-g++"
chmod +x "$PREFIX/bin/$triple"-g*
fill activate.sh > "$PREFIX/etc/conda/activate.d/activate-sysroot_linux-64.sh"
fill deactivate.sh > "$PREFIX/etc/conda/deactivate.d/deactivate-sysroot_linux-64.sh"

# The C++ headers of the floor. Debian's say that there is all that Debian's glibc has.
bash "$RECIPE_DIR/gcc/unpack.sh" source
export DDLCE_GCC="$CC" DDLCE_GXX="${CC/gcc/g++}"
export CC="$PREFIX/bin/$triple-gcc" CXX="$PREFIX/bin/$triple-g++ -nostdinc++"
bash "$RECIPE_DIR/gcc/configure_libstdcxx.sh" "$PWD/source" "$root/include/c++/$gcc"
make -C build/libstdc++-v3/include -j"$CPU_COUNT"
for part in include libsupc++; do
  make -C "build/libstdc++-v3/$part" install-data
done
