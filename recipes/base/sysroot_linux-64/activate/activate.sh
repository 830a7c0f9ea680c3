# Sourced on activation, after the compilers': the same compilers by way of wrappers, which take
# headers, crt files and libraries from the sysroot. So what they make runs on glibc @VERSION@.

_ddlce_set() {
  eval "if [ -n \"\${$1+set}\" ]; then _DDLCE_OLD_$1=\"\$$1\"; export _DDLCE_OLD_$1; fi"
  eval "$1=\"\$2\"; export $1"
}

# Prints what comes from the machine although it should not; nothing where all is right.
_ddlce_fault() {
  _ddlce_glibc="$(echo '#include <features.h>' | "$_ddlce_wrapper" -E -dM - 2>&1 |
    sed -n 's/^#define __GLIBC_MINOR__ /2./p')"
  if [ "$_ddlce_glibc" != "@HEADERS@" ]; then
    echo "its headers are of glibc ${_ddlce_glibc:-that it does not find}"
    return
  fi
  for _ddlce_file in crt1.o Scrt1.o crti.o crtn.o libc.so libm.so libc_nonshared.a; do
    _ddlce_found="$("$_ddlce_wrapper" -print-file-name="$_ddlce_file")"
    case "$_ddlce_found" in
      "$_ddlce_sysroot"/*) ;;
      *) echo "it links with $_ddlce_found"; return ;;
    esac
  done
}

if [ -n "${CC:-}" ]; then
  _ddlce_prefix="$CONDA_PREFIX"
  if [ "${CONDA_BUILD_STATE:-}" = BUILD ]; then
    _ddlce_prefix="$BUILD_PREFIX"
  fi
  _ddlce_sysroot="$(cd "$_ddlce_prefix" && pwd)/x86_64-conda-linux-gnu/sysroot"
  _ddlce_wrapper="$_ddlce_prefix/bin/@TRIPLE@-gcc"
  _ddlce_set DDLCE_GCC "$CC"
  _ddlce_set DDLCE_GXX "${CXX:-}"
  _ddlce_problem="$(_ddlce_fault)"
  if [ -n "$_ddlce_problem" ]; then
    echo "sysroot_@PLATFORM@: $CC does not take the C library of $_ddlce_sysroot: $_ddlce_problem" >&2
    echo "  Install the package sysroot_@PLATFORM@ again, or use Debian's or Red Hat's GCC" >&2
    case "${CONDA_BUILD_STATE:-}" in BUILD) exit 1 ;; TEST) return 0 ;; *) return 1 ;; esac
  fi
  export CC=@TRIPLE@-gcc
  if [ -n "${CXX:-}" ]; then
    export CXX=@TRIPLE@-g++
  fi
  unset _ddlce_prefix _ddlce_sysroot _ddlce_wrapper _ddlce_problem
fi
unset -f _ddlce_set _ddlce_fault
