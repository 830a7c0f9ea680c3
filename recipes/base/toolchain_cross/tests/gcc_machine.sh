# usage: gcc_machine.sh PLATFORM TRIPLE ELF-MACHINE [EMULATOR...]
# in an environment where the machine's compiler is activated
set -euo pipefail
platform=$1 triple=$2 machine=$3 run=("${@:4}")
activate=$CONDA_PREFIX/etc/conda/activate.d/activate-gcc_$platform.sh
deactivate=$CONDA_PREFIX/etc/conda/deactivate.d/deactivate-gcc_$platform.sh

# Without any compiler: a message that says what to install, an error, and nothing set.
message=$(env -i PATH=/nonexistent CONDA_PREFIX=/nowhere /bin/bash -c "
  . '$activate' && exit 9
  test -z \"\${CC+set}\" || exit 8" 2>&1)
echo "$message" | grep -q "gcc_$platform: this machine has no GCC .* for $triple"
for installer in 'apt-get install gcc' 'dnf install gcc' 'zypper install'; do
  echo "$message" | grep -q "$installer"
done

# In a build, the same ends the build.
if env -i PATH=/nonexistent CONDA_BUILD_STATE=BUILD /bin/bash -c ". '$activate'; true" 2>/dev/null; then
  echo "the build went on without a compiler" >&2
  exit 1
fi

# A compiler of another major version is refused, and named.
mkdir -p wrong
printf '#!/bin/sh\ncase $1 in -dumpversion) echo 9.3.0 ;; *) echo %s ;; esac\n' "$triple" > wrong/gcc
chmod +x wrong/gcc
message=$(env -i PATH="$PWD/wrong" CONDA_PREFIX=/nowhere /bin/bash -c ". '$activate' && exit 9" 2>&1) && exit 1
echo "$message" | grep -q 'Found: gcc is version 9.3.0'

if [ -z "${CC:-}" ]; then
  echo "no cross compiler on this machine: nothing to compile with"
  exit 0
fi

# Activation and deactivation leave the environment as it was, set variables and unset ones.
env -i PATH="$PATH" CONDA_PREFIX="$CONDA_PREFIX" CC=mine CFLAGS=-O1 bash -ec "
  before=\$(env | sort)
  . '$activate'
  test \"\$CC\" != mine
  test -n \"\$AR\"
  . '$deactivate'
  test \"\$before\" = \"\$(env | sort)\""

# In a build, the date of the build is no part of what is compiled.
date=$(env -i PATH="$PATH" CONDA_PREFIX="$CONDA_PREFIX" CONDA_BUILD_STATE=BUILD PREFIX=/p SRC_DIR=/s \
  SOURCE_DATE_EPOCH=1700000000 bash -ec ". '$activate'; echo __DATE__ | \$CC -E -P -")
test "$date" = '"Jan  1 2026"'

# The compiler compiles, for the right machine, with the prefix in its search paths.
printf '#include <stdio.h>\nint main(void) { return puts("compiled") < 0; }\n' > program.c
# shellcheck disable=SC2086
$CC $CPPFLAGS $CFLAGS program.c $LDFLAGS -o program
$READELF -h program | grep -q "$machine"
$READELF -d program | grep -q "$CONDA_PREFIX/lib"
if [ ${#run[@]} = 0 ] || command -v "${run[0]}" > /dev/null; then
  test "$("${run[@]}" ./program)" = compiled
fi
