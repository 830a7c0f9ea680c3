set -euo pipefail

# The library alone: the program would be a second way to the same.
make -C lib -j"$CPU_COUNT" lib-mt
make -C lib PREFIX="$PREFIX" LIBDIR="$PREFIX/lib" install-shared install-pc install-includes
