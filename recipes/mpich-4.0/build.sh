#!/usr/bin/env bash
# The `conda` variant. MPICHLIB_CFLAGS are for MPICH alone: CFLAGS would be handed on by mpicc to
# everybody's programs, and the environment has its own. LDFLAGS are handed on, on purpose: so what
# users compile with mpicc runs on the prefix's glibc, like the launcher and libmpi.
set -euo pipefail

export MPICHLIB_CFLAGS="$CPPFLAGS $CFLAGS"
unset CPPFLAGS CFLAGS

# dataloop, not yaksa, for derived datatypes: yaksa is half an hour of generated code, and what it
# adds is GPUs, which ddl does not hand to MPI. No C++ bindings: MPI itself dropped them in 2012.
./configure --prefix="$PREFIX" --libdir="$PREFIX/lib" --build="$BUILD" --host="$HOST" \
  --enable-shared --disable-static --disable-fortran --disable-cxx --enable-fast=O2 --disable-romio \
  --with-device=ch4:ofi --with-libfabric=embedded --with-hwloc=embedded \
  --with-datatype-engine=dataloop --without-ze --without-cuda --without-hip

# What it tells of its own making (mpichversion, mpiexec -info) is not to name this build's folders.
grep -rlI --include='*.h' -e "$SRC_DIR" -e ffile-prefix-map . | while read -r header; do
  sed -i -E -e "s#-ffile-prefix-map=[^ '\"\\]*##g" -e "s#$SRC_DIR#.#g" -e "s#$BUILD_PREFIX#/usr#g" \
    "$header"
done
make -j"$CPU_COUNT"
make install
rm -rf "$PREFIX"/lib/*.la "$PREFIX"/share/{man,doc}
# By the programs of a machine, not by those that this build had.
sed -i -e '1s|^#! .*/bash|#! /bin/bash|' -e '1s|^#! .*/perl|#! /usr/bin/perl|' \
  "$PREFIX"/bin/{mpicc,parkill}
# The launcher is mpich-hydra's, which asks who connects.
rm "$PREFIX"/bin/{mpiexec*,mpirun,hydra_*}
"$STRIP" --strip-unneeded "$PREFIX"/lib/libmpi.so.12.*.*

# The wrappers call the compiler that is active ($CC, $CXX), not the one that built MPICH, unless
# that is a wrapper itself: `CC=mpicc ./configure` is usual, and would call itself for ever. The
# one for C++ is the same script: there is no library of its own to link.
use_active_compiler() {
  local variable=$1 fallback=$2 script=$3
  grep -qx "$variable=\".*\"" "$script"
  sed -i "s#^$variable=\".*\"\$#case \"\${$variable:-}\" in '' | mpi* | */mpi*) $variable=$fallback ;; esac#" \
    "$script"
}
cp "$PREFIX/bin/mpicc" "$PREFIX/bin/mpicxx"
sed -i -E -e 's/\bCC\b/CXX/g' -e 's/MPICH_CC\b/MPICH_CXX/g' -e 's/-cc=/-cxx=/g' "$PREFIX/bin/mpicxx"
ln -s mpicxx "$PREFIX/bin/mpic++"
use_active_compiler CC cc "$PREFIX/bin/mpicc"
use_active_compiler CXX c++ "$PREFIX/bin/mpicxx"
