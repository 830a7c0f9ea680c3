# libgcc_s of linux-64, without the compiler that it belongs to: the environment's takes its place.
set -euo pipefail

triple=x86_64-linux-gnu
bash scripts/unpack.sh source gcc
source=$PWD/source
platform=("--build=$triple" "--host=$triple" "--target=$triple")
folder=$PWD/build
mkdir -p "$folder"/{gcc/include,build-$triple/libiberty,libiberty,$triple/libgcc}
unset CPPFLAGS LDFLAGS LD_RUN_PATH

# Headers that GCC generates for itself and for libgcc, by programs that run here and now.
export CFLAGS=-O0 CXXFLAGS=-O0
(cd "$folder/build-$triple/libiberty" && "$source/libiberty/configure" "${platform[@]}" &&
  make -j"$CPU_COUNT")
cd "$folder/gcc"
# Where ld and as are is not found out here. Without them, libgcc_s has no dl_iterate_phdr, and
# every C++ exception ends the program. GENERATOR_FILE: its questions are asked without GMP's header,
# which the generators do not need.
CPPFLAGS=-DGENERATOR_FILE "$source/gcc/configure" "${platform[@]}" --enable-languages=c --disable-multilib --enable-shared \
  --enable-threads=posix --with-sysroot=/ --disable-nls --enable-gnu-unique-object \
  --with-system-zlib --enable-gnu-indirect-function --with-gnu-ld --with-gnu-as \
  --with-ld="$(command -v "$LD")" --with-as="$(command -v "$AS")"
grep -q '^#define HAVE_LD_EH_FRAME_HDR 1' auto-host.h
# -o: not for these the whole compiler.
make -j"$CPU_COUNT" -o xgcc -o specs libgcc.mvars tm.h tconfig.h options.h insn-constants.h \
  insn-modes.h version.h

cd "$folder/$triple/libgcc"
map="-ffile-prefix-map=$source=/usr/src/gcc -ffile-prefix-map=$folder=/usr/src/build"
export CFLAGS="-g0 -O2 $map"
"$source/libgcc/configure" "${platform[@]}" --disable-multilib --enable-shared \
  --enable-threads=posix --prefix="$PREFIX"
# The decimal numbers' functions are in libgcc.a alone, which is not made for anybody here.
make -j"$CPU_COUNT" decimal_float= libgcc_s.so
"$STRIP" --strip-unneeded libgcc_s.so.1 -o "$PREFIX/lib/libgcc_s.so.1"
chmod 644 "$PREFIX/lib/libgcc_s.so.1"
