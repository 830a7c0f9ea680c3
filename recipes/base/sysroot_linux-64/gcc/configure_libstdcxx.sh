# usage: configure_libstdcxx.sh SOURCE HEADERS [OPTION...]: configures libstdc++ alone in
# ./build/libstdc++-v3, as GCC's own build would call it. HEADERS is where they are installed.
set -euo pipefail

source=$1 headers=$2
shift 2
triple=x86_64-linux-gnu
mkdir -p build/libstdc++-v3 build/libgcc
# Its configure script looks for this file of libgcc's build. Without, there are no threads, and
# no word of it.
ln -s "$source/libgcc/gthr-posix.h" build/libgcc/gthr-default.h
cd build/libstdc++-v3
unset CPPFLAGS
map="-ffile-prefix-map=$source=/usr/src/gcc -ffile-prefix-map=${PWD%/*}=/usr/src/build"
export CFLAGS="-g0 -O2 $map" CXXFLAGS="-g0 -O2 $map" LDFLAGS="-Wl,-O1 -Wl,-z,relro"
"$source/libstdc++-v3/configure" --build=$triple --host=$triple --target=$triple --prefix="$PREFIX" \
  --libdir="$PREFIX/lib" --disable-multilib --disable-libstdcxx-pch --enable-libstdcxx-time=yes \
  --with-default-libstdcxx-abi=new --enable-clocale=gnu --enable-gnu-unique-object \
  --with-gxx-include-dir="$headers" "$@"

# What a C library of Debian 11 or newer has; if one of them is missing, threads or locales are.
for have in _GLIBCXX_HAS_GTHREADS HAVE_TLS HAVE_WCHAR_H _GLIBCXX_USE_CLOCK_MONOTONIC; do
  grep -q "^#define $have 1" config.h || { echo "libstdc++: configured without $have" >&2; exit 1; }
done
