# Sourced on activation, after gcc_linux-ppc64le's, whose deactivation puts LDFLAGS back.
#
# A program names its loader by an absolute path, so it is the prefix's, replaced with it. RPATH
# (not RUNPATH) leads to lib/glibc from whatever the program loads, a driver of the machine too.
# The compiler's own glibc may be older than what the prefix's libraries ask for: they find it then.

if [ -n "${CC:-}" ]; then
  _ddlce_prefix="$CONDA_PREFIX"
  if [ "${CONDA_BUILD_STATE:-}" = BUILD ]; then
    _ddlce_prefix="$PREFIX"
  fi
  _ddlce_glibc="$_ddlce_prefix/lib/glibc"
  export LDFLAGS="${LDFLAGS:-} -Wl,--disable-new-dtags -Wl,-rpath,$_ddlce_glibc -Wl,--dynamic-linker,$_ddlce_glibc/ld64.so.2 -Wl,--allow-shlib-undefined"
  unset _ddlce_prefix _ddlce_glibc
fi
