# A C and a C++ program against the installed headers, found in the three ways that there are.
set -euo pipefail
cd tests/package # the engine runs a copy of this script above it

$CC $CFLAGS -Wall -Wextra -Werror -std=c99 use.c -o use_c $LDFLAGS $(pkg-config --cflags --libs ddl)
./use_c
mpiexec -n 2 ./use_c

# As Horovod does: ddl.hpp and both libraries; ddl_mpi.hpp beside MPI.
mpicxx $CXXFLAGS -Wall -Wextra -Werror use.cc -o use_cc $LDFLAGS -lddl -lddl_pack
mpiexec -n 2 ./use_cc

cmake -S . -B build -DCMAKE_PREFIX_PATH="$PREFIX" >/dev/null
cmake --build build
mpiexec -n 2 build/use_cmake
