# Programs of users, compiled in a root that has nothing but the prefix and glibc's six libraries,
# run there: on the environment's C++ library, and on the oldest glibc that the release runs on.
set -euo pipefail

cat > program.cpp << 'CPP'
#include <condition_variable>
#include <filesystem>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <thread>
int main() {
  std::mutex mutex;
  std::condition_variable ready;
  bool set = false;
  std::thread other([&] { std::lock_guard lock(mutex); set = true; ready.notify_one(); });
  std::unique_lock lock(mutex);
  ready.wait(lock, [&] { return set; });
  lock.unlock();
  other.join();
  try {
    throw std::runtime_error("thrown");
  } catch (const std::exception& error) {
    std::cout << error.what() << std::filesystem::exists(".") << std::make_shared<int>(7).use_count() << std::endl;
  }
}
CPP
echo '#include <math.h>
#include <stdio.h>
int main(int n, char **v) { return !(v && pow(n + 1, 3) == 8 && printf("ran\n") == 4); }' > program.c

gcc=$CONDA_PREFIX/x86_64-conda-linux-gnu/gcc/bin
unset LD_RUN_PATH CC CXX CFLAGS CXXFLAGS LDFLAGS CPPFLAGS CPATH CONDA_BUILD_STATE
root=()
if bwrap --ro-bind / / true 2> said; then
  root=(bwrap --unshare-all --ro-bind "$CONDA_PREFIX" "$CONDA_PREFIX" --bind "$PWD" "$PWD"
    --dir /tmp --dev /dev --proc /proc --chdir "$PWD" --clearenv)
  for name in libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 ld-linux-x86-64.so.2; do
    file=$(ldconfig -p | sed -n "s/^\t$name (libc6,x86-64.*=> //p" | head -1)
    # Debian's loader looks into the first, Red Hat's into the second.
    root+=(--ro-bind "$(realpath "$file")" "/lib/$name" --ro-bind "$(realpath "$file")" "/lib64/$name")
  done
else
  echo "not tried in a root without anything else: $(cat said)"
fi
"${root[@]}" "$gcc/x86_64-conda-linux-gnu-g++" -std=c++17 program.cpp -o program -pthread
test "$("${root[@]}" ./program)" = thrown11
for options in "" "-O2 -g -flto" "-O3 -march=native -no-pie"; do
  # shellcheck disable=SC2086
  "${root[@]}" "$gcc/g++" -std=c++17 $options program.cpp -o program -pthread
  test "$("${root[@]}" ./program)" = thrown11
  # shellcheck disable=SC2086
  "${root[@]}" "$gcc/gcc" $options program.c -o program -lm
  test "$("${root[@]}" ./program)" = ran
done
"${root[@]}" "$gcc/gcc" -fPIC -fopenmp -shared -x c - -o lib.so << 'C'
#include <omp.h>
int sum(void) { int s = 0;
#pragma omp parallel for reduction(+:s)
  for (int i = 0; i < 10; ++i) s += i;
  return s + omp_get_max_threads(); }
C
readelf=$CONDA_PREFIX/bin/x86_64-conda-linux-gnu-readelf
"$readelf" -d lib.so | grep -q 'NEEDED.*libgomp.so.1'
newest=$("$readelf" -V program lib.so | grep -o 'GLIBC_2[.0-9]*' | sort -uV | tail -1)
test "$(printf 'GLIBC_2.28\n%s\n' "$newest" | sort -V | tail -1)" = GLIBC_2.28

# Of headers and libraries, none is the machine's.
"$gcc/g++" -std=c++17 -M program.cpp | tr -s ' \\' '\n\n' | grep '^/' > seen
"$gcc/g++" -std=c++17 -Wl,--trace program.cpp -o program -pthread | grep '^(\?/' >> seen
if grep -v -e "$CONDA_PREFIX/" -e "^${TMPDIR:-/tmp}/" seen; then
  echo "the files above are the machine's" >&2
  exit 1
fi
