# In an environment where the package is activated: without a compiler it leaves LDFLAGS alone, with
# one the programs' loader is in the prefix.
set -euo pipefail
activate=$CONDA_PREFIX/etc/conda/activate.d/activate-glibc_linux-ppc64le.sh

(
  unset CC LDFLAGS
  . "$activate"
  test -z "${LDFLAGS+set}"
)
(
  CC=cc LDFLAGS=-Lbefore CONDA_BUILD_STATE=TEST
  . "$activate"
  case $LDFLAGS in
    -Lbefore*" -Wl,--dynamic-linker,$CONDA_PREFIX/lib/glibc/ld64.so.2"*) ;;
    *) echo "LDFLAGS is $LDFLAGS" >&2; exit 1 ;;
  esac
)
