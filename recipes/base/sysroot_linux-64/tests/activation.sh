# usage: activation.sh FLOOR, in an environment with the compilers and this package
set -euo pipefail
floor=$1
scripts=$CONDA_PREFIX/etc/conda
sysroot=$CONDA_PREFIX/x86_64-conda-linux-gnu

# The wrappers are the compilers; the machine's own are kept for them.
test "$CC" = x86_64-linux-gnu-gcc && test "$CXX" = x86_64-linux-gnu-g++
test "$("$DDLCE_GCC" -dumpversion)" = "$($CC -dumpversion)"
test "$("$DDLCE_GXX" -dumpversion)" = "$($CXX -dumpversion)"

# Activation and deactivation of all three leave the environment as it was.
env -i PATH="$PATH" CONDA_PREFIX="$CONDA_PREFIX" CC=mine DDLCE_GCC=mine bash -ec "
  before=\$(env | sort)
  for tool in gcc gxx sysroot; do . '$scripts'/activate.d/activate-\${tool}_linux-64.sh; done
  test \"\$CC\" = x86_64-linux-gnu-gcc
  for tool in sysroot gxx gcc; do . '$scripts'/deactivate.d/deactivate-\${tool}_linux-64.sh; done
  test \"\$before\" = \"\$(env | sort)\""

# A compiler that would fall back to the machine's files is refused, and it is said why.
mkdir -p broken/bin
cp -r "$sysroot" broken/
cp "$CONDA_PREFIX"/bin/x86_64-linux-gnu-g* broken/bin/
activate() { # PREFIX STATE
  env -i PATH="$PATH" CONDA_PREFIX="$1" BUILD_PREFIX="$1" CONDA_BUILD_STATE="$2" CC="$DDLCE_GCC" \
    bash -c ". '$scripts/activate.d/activate-sysroot_linux-64.sh'; echo \$? \$CC" 2>&1
}
test "$(activate "$PWD/broken" '')" = "0 x86_64-linux-gnu-gcc"
refused() { # WORDS
  said=$(activate "$PWD/broken" '')
  grep -q "1 $DDLCE_GCC" <<< "$said"
  grep -qF "$1" <<< "$said"
  if said=$(activate "$PWD/broken" BUILD); then
    echo "the build went on with the machine's files" >&2
    exit 1
  fi
}
lib=broken/x86_64-conda-linux-gnu/sysroot/usr/lib
mv $lib/crt1.o .
refused "it links with /"
mv crt1.o $lib/
include=broken/x86_64-conda-linux-gnu/sysroot/usr/include
sed -i 's/\(#define\s*__GLIBC_MINOR__\s*\).*/\199/' $include/features.h
refused "its headers are of glibc 2.99"
rm $include/features.h
refused "its headers are of glibc that it does not find"

# In a build, an option that brings the machine's files in ends the compiler. A user may give it.
echo 'int main(void) { return 0; }' > empty.c
for option in -I/usr/include/x86_64-linux-gnu "-isystem /usr/include" -L/usr/lib "-L /lib64" \
  -B/usr/lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu/libm.so; do
  # shellcheck disable=SC2086
  if said=$(CONDA_BUILD_STATE=BUILD $CC $option empty.c -o empty 2>&1); then
    echo "$option is not refused" >&2
    exit 1
  fi
  grep -qF -- "${option##* }: a file or folder of the machine, in a build for glibc $floor" <<< "$said"
done
CONDA_BUILD_STATE=BUILD $CC -I"$PWD" -L"$PWD" empty.c -lm -o empty
CONDA_BUILD_STATE='' $CC -I/usr/include empty.c -o empty
