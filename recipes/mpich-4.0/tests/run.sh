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
# Read by the shell: there is no pkg-config for the platforms of this package.
pcfiledir=$PREFIX/lib/pkgconfig
(
  eval "$(sed -n 's/^\([a-z_]*\)=\(.*\)$/\1="\2"/p' "$pcfiledir/mpich.pc")"
  eval "echo $(sed -n 's/^Cflags: *//p; s/^Libs: *//p' "$pcfiledir/mpich.pc" | tr '\n' ' ')"
) > flags
# shellcheck disable=SC2046 # they are words
$CC $(cat flags) \
  $LDFLAGS -Wl,--no-as-needed -o reduce-pc reduce.c -lmpi
"$HOST-readelf" -d reduce | grep -F 'libmpi.so.12'
# Also without the environment's LDFLAGS: on the glibc in the prefix.
(unset LDFLAGS && mpicc -o reduce-plain reduce.c)
"$HOST-readelf" -lW reduce-plain | grep -F "$PREFIX/lib/glibc/ld64.so.2"

for program in reduce reduce++ reduce-pc reduce-plain; do
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
