# usage: sysroot.sh PLATFORM: the floor is kept, by a stand-in compiler of a given glibc
set -euo pipefail
activate=$CONDA_PREFIX/etc/conda/activate.d/activate-sysroot_$1.sh
floor=$(sed -n 's/.*_ddlce_floor="2\.\([0-9]*\)"/\1/p' "$activate")

with_glibc() {
  printf '#!/bin/sh\necho "#define __GLIBC_MINOR__ %s"\n' "$1" > cc
  chmod +x cc
  env -i PATH="$PATH" CC=./cc sh -c ". '$activate'" 2>&1
}

with_glibc "$floor"
with_glibc 17
message=$(with_glibc $((floor + 1))) && exit 1
echo "$message" | grep -q "compiles for glibc 2.$((floor + 1)), packages are declared for 2.$floor"
message=$(with_glibc "") && exit 1
echo "$message" | grep -q 'finds no C library headers'
