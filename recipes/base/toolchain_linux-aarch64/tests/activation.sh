# usage: activation.sh, in an environment where the compilers are activated
set -euo pipefail
folder=$CONDA_PREFIX/etc/conda
activate=$folder/activate.d/activate-gcc_linux-aarch64.sh
deactivate=$folder/deactivate.d/deactivate-gcc_linux-aarch64.sh

if [ -z "${CC:-}" ]; then
  # On aarch64 the compiler is the machine's; the build's machine may have none.
  message=$(env -i PATH="$PATH" CONDA_PREFIX=/nowhere bash -c ". '$activate' && exit 9" 2>&1) && exit 1
  grep -q 'this machine has no GCC 12 for aarch64-linux-gnu' <<< "$message"
  exit 0
fi

# A build stops without a compiler that runs.
if env -i PATH=/nonexistent BUILD_PREFIX=/nowhere CONDA_BUILD_STATE=BUILD /bin/bash -c ". '$activate'; true" 2> /dev/null; then
  echo "the build went on without a compiler" >&2
  exit 1
fi

# Activation and deactivation leave the environment as it was, set variables and unset ones.
env -i PATH="$PATH" CONDA_PREFIX="$CONDA_PREFIX" CC=mine CFLAGS=-O1 bash -ec "
  before=\$(env | sort)
  . '$activate'
  test \"\$CC\" != mine
  test -n \"\$AR\"
  . '$deactivate'
  test \"\$before\" = \"\$(env | sort)\""

# The compilers compile, for the right machine, with the prefix in their search paths.
printf '#include <stdio.h>\nint main(void) { return puts("compiled") < 0; }\n' > program.c
# shellcheck disable=SC2086
$CC $CPPFLAGS $CFLAGS program.c $LDFLAGS -o program
$READELF -h program | grep -q AArch64
$READELF -d program | grep -q "$CONDA_PREFIX/lib"
if [ -n "${CXX:-}" ]; then
  printf '#include <iostream>\nint main() { std::cout << "compiled" << std::endl; }\n' > program.cpp
  # shellcheck disable=SC2086
  $CXX $CPPFLAGS $CXXFLAGS program.cpp $LDFLAGS -o program
  $READELF -d program | grep -q 'libstdc++.so.6'
fi
