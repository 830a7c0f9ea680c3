# usage: compile.sh gcc|g++ FLOOR: the cross compiler works in a moved prefix, reads nothing of the
# machine, and makes programs and libraries that need no glibc above the floor.
set -euo pipefail
triple=aarch64-linux-gnu tool=aarch64-linux-gnu-$1 floor=$2
unset LD_RUN_PATH
cat > program.c << 'C'
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
static void *run(void *x) { return x; }
int main(int n, char **v) {
  struct stat status;
  pthread_t t;
  pthread_create(&t, 0, run, v);
  return !(pthread_join(t, 0) == 0 && stat(v[0], &status) == 0 && pow(n + 1, 3) == 8 && printf("ran\n") == 4);
}
C
cat > program.cpp << 'C'
#include <condition_variable>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <thread>
int main() {
  std::mutex mutex;
  std::condition_variable ready;
  auto set = std::make_shared<bool>(false);
  std::thread other([&] { std::lock_guard lock(mutex); *set = true; ready.notify_one(); });
  std::unique_lock lock(mutex);
  ready.wait_for(lock, std::chrono::seconds(10), [&] { return *set; });
  lock.unlock();
  other.join();
  try { throw std::runtime_error("ran"); } catch (const std::exception& e) { std::cout << e.what() << std::endl; }
}
C
source=program.c
if [ "$1" = g++ ]; then source=program.cpp; fi

compile() { "$1/bin/$tool" -O2 -fstack-protector-strong "$source" -o "$2" -lm -lpthread; }
compile "$CONDA_PREFIX" here
readelf="$CONDA_PREFIX/bin/$triple-readelf"
"$readelf" -h here | grep -q AArch64
# For pages of 64 KiB.
"$readelf" -lW here | awk '$1 == "LOAD" && $NF != "0x10000" { exit 1 }'
newest=$("$readelf" -V here | grep -o 'GLIBC_2[.0-9]*' | sort -uV | tail -1)
test "$(printf 'GLIBC_%s\n%s\n' "$floor" "$newest" | sort -V | tail -1)" = "GLIBC_$floor"
# Atomic operations ask the processor for its own instructions (LSE).
echo 'int f(int *x) { return __atomic_fetch_add(x, 1, __ATOMIC_SEQ_CST); }' > atomic.c
"$CONDA_PREFIX/bin/$triple-gcc" -O2 -S atomic.c -o - | grep -q __aarch64_ldadd4

# A library may need others of glibc, which the program is not linked with.
echo 'double cosh(double); double f(double x) { return cosh(x); }' > library.c
echo 'double f(double); int main(void) { return f(0) > 2; }' > user.c
"$CONDA_PREFIX/bin/$triple-gcc" -shared -fPIC library.c -o liblibrary.so -lm
"$CONDA_PREFIX/bin/$triple-gcc" user.c -L. -llibrary -o user

moved="$PWD/ein Präfix"
mkdir -p "$moved"
cp -al "$CONDA_PREFIX/bin" "$CONDA_PREFIX/$triple" "$CONDA_PREFIX/x86_64-conda-linux-gnu" "$moved/"
compile "$moved" moved
cmp here moved

# Of headers and libraries, none is the machine's.
"$CONDA_PREFIX/bin/$tool" -M "$source" | tr -s ' \\' '\n\n' | grep '^/' > seen
"$CONDA_PREFIX/bin/$tool" -Wl,--trace "$source" -o traced -lm -lpthread | grep '^(\?/' >> seen
if grep -v -e "$CONDA_PREFIX/" -e "^${TMPDIR:-/tmp}/" seen; then
  echo "the files above are the machine's" >&2
  exit 1
fi

# The same bytes each time: no stub names the object that it was made of.
for library in "$CONDA_PREFIX/$triple/gcc/$triple"/lib/lib*.so.*; do
  if "$readelf" -sW "$library" | grep -w FILE; then
    echo "$library has the name of a file" >&2
    exit 1
  fi
done
