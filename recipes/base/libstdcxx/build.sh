# libstdc++ of linux-64: Debian's own objects, which a package has for those who link the library anew.
# So it needs no newer glibc than the sysroot's. The objects for programs of old compilers are not
# among them, and are compiled.
set -euo pipefail

objects=$(echo debian/usr/lib/gcc/*/*)
inner=$(tar tzf gcc-orig.tar.gz | grep -E '/gcc-[0-9.]+(-dfsg)?\.tar\.xz$')
tar xzOf gcc-orig.tar.gz "$inner" | tar xJ --strip-components=2 --wildcards \
  '*/libstdc++-v3/src/*' '*/libstdc++-v3/config/abi/compatibility.h'
# What libstdc++'s configure script would put where its sources look for it.
mkdir -p made/bits
cp config/abi/compatibility.h made/bits/
echo '#include <stdint.h>' > made/gstdint.h

flags=(-O2 -g0 -fPIC -DPIC -D_GLIBCXX_SHARED "-ffile-prefix-map=$PWD=/usr/src/libstdc++")
compile() { # STANDARD FILE...
  for file in "${@:2}"; do
    "$CXX" "-std=$1" "${flags[@]}" -fno-implicit-templates -Wno-abi -Wno-deprecated -Imade -Isrc \
      -c "$file" -o "made/$(basename "$file" .cc).o"
  done
}
compile gnu++98 src/c++98/compatibility{,-debug_list,-debug_list-2}.cc
compile gnu++11 src/c++11/compatibility-{c++0x,atomic-c++0x,thread-c++0x,chrono,condvar}.cc
"$CC" "${flags[@]}" -c "$RECIPE_DIR/older.c" -o made/older.o

# Linked as GCC's own build does, with its list of names and versions.
unset LD_RUN_PATH
part() { "$CC" "-print-file-name=$1"; }
library=libstdc++.so.6.0.30
"$CXX" -shared -nostdlib "$(part crti.o)" "$(part crtbeginS.o)" made/*.o \
  -Wl,--whole-archive "$objects/libstdc++_pic.a" -Wl,--no-whole-archive \
  -Wl,-soname,libstdc++.so.6 "-Wl,--version-script=$objects/libstdc++_pic.map" \
  -Wl,-O1 -Wl,-z,relro -Wl,--gc-sections -Wl,--build-id=none -lm -lpthread -lc -lgcc_s -lgcc -lc \
  "$(part crtendS.o)" "$(part crtn.o)" -o "$library"
"$STRIP" --strip-unneeded "$library" -o "$PREFIX/lib/$library"
chmod 644 "$PREFIX/lib/$library"
ln -s "$library" "$PREFIX/lib/libstdc++.so.6"
