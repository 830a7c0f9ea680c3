# libstdc++ of linux-64, without the compiler that it belongs to: the environment's takes its place.
set -euo pipefail

bash scripts/unpack.sh source
export CXX="$CXX -shared-libgcc -nostdinc++"
bash scripts/configure_libstdcxx.sh "$PWD/source" "$PWD/headers" --disable-static
make -C build/libstdc++-v3 -j"$CPU_COUNT"
library=$(find build/libstdc++-v3/src/.libs -name 'libstdc++.so.6.*' -type f)
"$STRIP" --strip-unneeded "$library" -o "$PREFIX/lib/${library##*/}"
chmod 644 "$PREFIX/lib/${library##*/}"
ln -s "${library##*/}" "$PREFIX/lib/libstdc++.so.6"
