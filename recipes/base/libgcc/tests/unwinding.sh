# An exception through two shared libraries to its program, all on the prefix's libgcc_s.
set -euo pipefail

echo 'struct Thrown { int code; }; void low(int n) { if (n == 0) throw Thrown{42}; low(n - 1); }' > low.cpp
echo 'void low(int); struct Guard { int* n; ~Guard() { ++*n; } };
void middle(int* ended) { Guard guard{ended}; low(5); }' > middle.cpp
cat > program.cpp << 'CPP'
#include <cstdio>
struct Thrown { int code; };
void middle(int*);
int main() {
  int ended = 0;
  try {
    middle(&ended);
  } catch (const Thrown& thrown) {
    return std::printf("%d %d\n", thrown.code, ended) < 0;
  }
  return 1;
}
CPP
flags="$CXXFLAGS -shared-libgcc $LDFLAGS -Wl,-rpath,$PWD -L$PWD"
# shellcheck disable=SC2086
{
  $CXX -shared low.cpp $flags -o liblow.so
  $CXX -shared middle.cpp $flags -llow -o libmiddle.so
  $CXX program.cpp $flags -lmiddle -llow -o program
}
test "$(./program)" = "42 1"
ldd ./program | grep -F "libgcc_s.so.1 => $PREFIX/lib/libgcc_s.so.1"
