# usage: compile.sh TRIPLE gcc|g++ MACHINE: the cross compiler works in a root that has nothing but the
# prefix, and in a moved prefix; it reads nothing of the machine.
set -euo pipefail
triple=$1 tool=$1-$2 machine=$3
unset LD_RUN_PATH
echo '#include <math.h>
#include <pthread.h>
#include <stdio.h>
static void *run(void *x) { return x; }
int main(int n, char **v) { pthread_t t; pthread_create(&t, 0, run, v);
  return !(pthread_join(t, 0) == 0 && pow(n + 1, 3) == 8 && printf("ran\n") == 4); }' > program.c
echo '#include <iostream>
#include <stdexcept>
int main() { try { throw std::runtime_error("ran"); } catch (const std::exception& e) { std::cout << e.what() << std::endl; } }' > program.cpp
source=program.c
if [ "$2" = g++ ]; then source=program.cpp; fi

compile() { # PREFIX OUTPUT COMMAND...
  "${@:3}" "$1/bin/$tool" -O2 "$source" -o "$2" -lm -lpthread
}
compile "$CONDA_PREFIX" here
"$CONDA_PREFIX/bin/$triple-readelf" -h here | grep -q "$machine"
moved="$PWD/ein Präfix"
mkdir -p "$moved"
cp -al "$CONDA_PREFIX/bin" "$CONDA_PREFIX/$triple" "$CONDA_PREFIX/x86_64-conda-linux-gnu" "$moved/"
compile "$moved" moved
cmp here moved
if bwrap --ro-bind / / true 2> bwrap.said; then
  compile "$CONDA_PREFIX" alone bwrap --unshare-all --ro-bind "$CONDA_PREFIX" "$CONDA_PREFIX" \
    --bind "$PWD" "$PWD" --dir /tmp --dev /dev --proc /proc --chdir "$PWD" --clearenv --
  cmp here alone
else
  echo "not tried in a root without anything else: $(cat bwrap.said)"
fi

# Of headers and libraries, none is the machine's.
"$CONDA_PREFIX/bin/$tool" -M "$source" | tr -s ' \\' '\n\n' | grep '^/' > seen
"$CONDA_PREFIX/bin/$tool" -Wl,--trace "$source" -o traced -lm -lpthread | grep '^(\?/' >> seen
if grep -v -e "$CONDA_PREFIX/" -e "^${TMPDIR:-/tmp}/" seen; then
  echo "the files above are the machine's" >&2
  exit 1
fi
emulator=qemu-${triple%%-*}-static
emulator=${emulator/powerpc64le/ppc64le}
if command -v "$emulator" > /dev/null; then
  test "$("$emulator" -L "$CONDA_PREFIX/$triple/gcc/$triple" ./here)" = ran
fi
