# usage: loader.sh VERSION. The loader runs by itself, and takes its own libraries, not the machine's.
set -euo pipefail
glibc=$CONDA_PREFIX/lib/glibc
"$glibc/ld64.so.2" --version | grep -F "version $1"
"$glibc/ld64.so.2" --library-path "$glibc" --list "$glibc/libm.so.6" |
  grep -F "libc.so.6 => $glibc/libc.so.6"
