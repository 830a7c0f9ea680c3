# A program with two libraries of its own, all on the prefix's libstdc++.
set -euo pipefail

cd tests
flags="-std=c++17 $CXXFLAGS $LDFLAGS -Wl,-rpath,$PWD -L$PWD"
# shellcheck disable=SC2086
{
  $CXX -shared library.cpp $flags -o liblibrary.so
  $CXX -shared middle.cpp $flags -llibrary -o libmiddle.so
  $CXX program.cpp $flags -lmiddle -llibrary -lpthread -o program
}
test "$(./program)" = passed
ldd ./program | grep -F "libstdc++.so.6 => $PREFIX/lib/libstdc++.so.6"
