#!/usr/bin/env bash
# Compile with the wrappers, run on 2 and 4 ranks; the programs check every value themselves.
set -euo pipefail
cd "$(dirname "$0")"

# The wrapper calls the environment's compiler with the environment's headers and libraries.
[[ $(mpicc -show) == "$CC "*"-I$PREFIX/include"* ]] || { mpicc -show; exit 1; }
# A wrapper as the active compiler must not call itself.
[[ $(CC=mpicc mpicc -show) == "cc "* ]]

mpicc -Wall -Wextra -Werror -o reduce reduce.c
mpicxx -Wall -Wextra -Werror -x c++ -o reduce++ reduce.c
$CC $(PKG_CONFIG_PATH=$PREFIX/lib/pkgconfig pkg-config --cflags --libs mpich) \
  -Wl,-rpath,"$PREFIX/lib" -Wl,--no-as-needed -o reduce-pc reduce.c -lmpi
"$READELF" -d reduce | grep -F 'libmpi.so.12'

for program in reduce reduce++ reduce-pc; do
  for ranks in 1 2 4; do
    mpiexec -n "$ranks" "./$program" "$ranks"
  done
done

# A rank that fails makes the launcher fail.
if mpiexec -n 2 ./reduce 3 > /dev/null 2>&1; then
  echo "mpiexec hid the failure of a rank"
  exit 1
fi
mpichversion | grep -F "$PKG_VERSION"
