# usage: gcc_own.sh PLATFORM HOST ELF-MACHINE [EMULATOR...]
# in an environment where the package is activated, on linux-64
set -euo pipefail
platform=$1 host=$2 machine=$3 run=("${@:4}")
activate=$CONDA_PREFIX/etc/conda/activate.d/activate-gcc_$platform.sh
deactivate=$CONDA_PREFIX/etc/conda/deactivate.d/deactivate-gcc_$platform.sh
test "$(command -v "$CC")" = "$CONDA_PREFIX/bin/$host-gcc"

# A compiler that does not run: a message, an error, and nothing set.
broken=$PWD/broken
mkdir -p "$broken"
if message=$(env -i PATH="$PATH" CONDA_PREFIX="$broken" bash -c ". '$activate' && exit 0
  test -z \"\${CC+set}\" || exit 0; exit 9" 2>&1); then exit 1; else test $? = 9; fi
grep -qF "gcc_$platform: the compiler in $broken does not run" <<< "$message"
grep -qF "install gcc_impl_$platform again" <<< "$message"
# In a build, the same ends the build.
if env -i PATH="$PATH" BUILD_PREFIX="$broken" CONDA_PREFIX="$CONDA_PREFIX" CONDA_BUILD_STATE=BUILD \
  bash -c ". '$activate'; true" 2> /dev/null; then
  echo "the build went on without a compiler" >&2
  exit 1
fi

# Activation and deactivation leave the environment as it was, set variables and unset ones. A
# user's PATH is not changed: a plain `gcc` stays the machine's.
env -i PATH="$PATH" CONDA_PREFIX="$CONDA_PREFIX" CC=mine CFLAGS=-O1 bash -ec "
  before=\$(env | sort)
  . '$activate'
  test \"\$CC\" = $host-gcc
  test \"\$AR\" = $host-ar
  . '$deactivate'
  test \"\$before\" = \"\$(env | sort)\""

# In a build, plain names are ours, and the date of the build is no part of what is compiled.
build() {
  env -i PATH="$PATH" CONDA_PREFIX=/nowhere BUILD_PREFIX="$CONDA_PREFIX" CONDA_BUILD_STATE=BUILD \
    PREFIX=/p SRC_DIR=/s SOURCE_DATE_EPOCH=1700000000 bash -ec ". '$activate'; $1"
}
test "$(build 'echo __DATE__ | $CC -E -P -')" = '"Jan  1 2026"'
for name in gcc cc cpp ar as ld nm ranlib readelf strip objdump; do
  test "$(build "command -v $name")" = "$CONDA_PREFIX/$host/gcc/bin/$name"
done

# The compiler compiles, with the prefix in its search paths.
printf '#include <stdio.h>\nint main(void) { return puts("compiled") < 0; }\n' > program.c
# shellcheck disable=SC2086
$CC $CPPFLAGS $CFLAGS program.c $LDFLAGS -o program
$READELF -h program | grep -q $machine
$READELF -d program | grep -q "$CONDA_PREFIX/lib"
if [ ${#run[@]} = 0 ] || command -v "${run[0]}" > /dev/null; then
  test "$("${run[@]}" ./program)" = compiled
fi
