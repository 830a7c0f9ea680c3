# usage: low.sh FLOOR FILE: FILE needs no version of glibc above the floor
set -euo pipefail
floor=$1
newest=$(readelf -V "$2" | grep -o 'GLIBC_2[.0-9]*' | sort -uV | tail -1)
test "$(printf 'GLIBC_%s\n%s\n' "$floor" "$newest" | sort -V | tail -1)" = "GLIBC_$floor"
