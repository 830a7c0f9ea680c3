# In the build of a package, options that name the machine's files end the compiler. A user may give
# them. Without such an option, it looks nowhere but in the prefix.
set -euo pipefail
gcc=$CONDA_PREFIX/bin/x86_64-conda-linux-gnu-gcc
echo 'int main(void) { return 0; }' > empty.c

for option in -I/usr/include/x86_64-linux-gnu "-isystem /usr/include" -L/usr/lib "-L /lib64" \
  -B/usr/lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu/libm.so; do
  # shellcheck disable=SC2086
  if said=$(CONDA_BUILD_STATE=BUILD "$gcc" $option -c empty.c -o empty.o 2>&1); then
    echo "$option is not refused" >&2
    exit 1
  fi
  grep -qF "gcc: a file or folder of the machine, in the build of a package: ${option##*-[ILB]}" <<< "$said" ||
    grep -qF "in the build of a package: ${option##* }" <<< "$said"
done
CONDA_BUILD_STATE=BUILD "$gcc" -I"$PWD" -L"$PWD" -c empty.c -o empty.o
CONDA_BUILD_STATE='' "$gcc" -I/usr/include -c empty.c -o empty.o

folders=$("$gcc" -print-search-dirs | sed -n 's/^[a-z]*: =*//p' | tr : '\n')
if grep -v "^$CONDA_PREFIX/" <<< "$folders"; then
  echo "gcc looks in the folders above, which are the machine's" >&2
  exit 1
fi
