#!/usr/bin/env bash
# The `conda` variant: the wheel's files, made a member of the environment.
set -euo pipefail
source "$RECIPE_DIR/unpack.sh"

cd wheel/mpich-*.data/data
chmod 755 bin/*
chmod 644 include/*

# The launcher is mpich-hydra's, which asks who connects.
rm bin/mpiexec* bin/mpirun bin/hydra_*
# A linker script where a link will do: dlopen needs a library.
for name in mpic++ mpic++_abi; do ln -sf "mpicxx${name#mpic++}" "bin/$name"; done
ln -sf libmpi.so.12 lib/libmpi.so
ln -sf libmpi_abi.so.1 lib/libmpi_abi.so

# The wrappers call the compiler that is active ($CC, $CXX), not the machine's `cc`, unless that
# is a wrapper itself: `CC=mpicc ./configure` is usual, and would call itself for ever. Where there
# is none, they call this environment's, if it has one.
use_active_compiler() {
  local variable=$1 fallback=$2
  shift 2
  for script in "$@"; do
    grep -qx "$variable=\"$fallback\"" "$script"
    sed -i "s|^$variable=\"$fallback\"\$|case \"\${$variable:-}\" in '' \| mpi* \| */mpi*) $variable=$fallback ;; esac\nPATH=\$PATH:\$prefix/x86_64-conda-linux-gnu/gcc/bin|" "$script"
  done
}
use_active_compiler CC cc bin/mpicc bin/mpicc_abi
use_active_compiler CXX c++ bin/mpicxx bin/mpicxx_abi

mkdir -p lib/pkgconfig
cat > lib/pkgconfig/mpich.pc <<'PC'
prefix=${pcfiledir}/../..
libdir=${prefix}/lib
includedir=${prefix}/include

Name: mpich
Description: A high performance implementation of the MPI standard
URL: https://www.mpich.org
Version: @VERSION@
Libs: -L${libdir} -lmpi
Cflags: -I${includedir}
PC
sed -i "s/@VERSION@/$PKG_VERSION/" lib/pkgconfig/mpich.pc

cp -a bin include lib "$PREFIX/"
