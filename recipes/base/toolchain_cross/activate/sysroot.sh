# Sourced on activation, after the compilers': packages declare that they run on glibc
# @VERSION@, so they must not be compiled against a newer one.

if [ -n "${CC:-}" ]; then
  _ddlce_glibc="$(echo '#include <features.h>' | $CC -E -dM - |
    sed -n 's/^#define __GLIBC_MINOR__ //p')"
  _ddlce_floor="@VERSION@"
  if [ -z "$_ddlce_glibc" ]; then
    echo "sysroot_@PLATFORM@: $CC finds no C library headers" >&2
    echo "@GET_LIBC@" >&2
  elif [ "$_ddlce_glibc" -gt "${_ddlce_floor#2.}" ]; then
    echo "sysroot_@PLATFORM@: $CC compiles for glibc 2.$_ddlce_glibc, packages are declared for @VERSION@" >&2
    echo "  Build on a machine with glibc @VERSION@ or older, or raise c_stdlib_version in recipes/conda_build_config.yaml" >&2
    _ddlce_glibc=""
  fi
  if [ -z "$_ddlce_glibc" ]; then
    unset _ddlce_glibc _ddlce_floor
    case "${CONDA_BUILD_STATE:-}" in BUILD) exit 1 ;; TEST) return 0 ;; *) return 1 ;; esac
  fi
  unset _ddlce_glibc _ddlce_floor
fi
