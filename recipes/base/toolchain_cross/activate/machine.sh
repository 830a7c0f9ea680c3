# Sourced on activation, by any POSIX-like shell. Finds the machine's C compiler for @TRIPLE@
# and sets what build scripts read. The values before are kept for the deactivation.

_ddlce_set() {
  eval "if [ -n \"\${$1+set}\" ]; then _DDLCE_OLD_$1=\"\$$1\"; export _DDLCE_OLD_$1; fi"
  eval "$1=\"\$2\"; export $1"
}

# Prints the first compiler that makes code for this platform and has the right version.
_ddlce_find_gcc() {
  _ddlce_seen=""
  for _ddlce_name in gcc-@VERSION@ gcc @TRIPLE@-gcc-@VERSION@ @TRIPLE@-gcc; do
    _ddlce_version="$("$_ddlce_name" -dumpversion 2>/dev/null)" || continue
    case "$("$_ddlce_name" -dumpmachine)" in
      @MACHINE@-*linux*) ;;
      *) continue ;;
    esac
    case "$_ddlce_version" in
      @VERSION@ | @VERSION@.*) echo "$_ddlce_name"; return 0 ;;
    esac
    _ddlce_seen="$_ddlce_seen $_ddlce_name is version $_ddlce_version;"
  done
  echo "gcc_@PLATFORM@: this machine has no GCC @VERSION@ for @TRIPLE@.${_ddlce_seen:+ Found:$_ddlce_seen}" >&2
  echo "@GET_GCC@" >&2
  return 1
}

# A build stops here; a user's shell goes on without the variables. So does a package's test, as
# the channel's cross compilers are tested on machines that have none.
_ddlce_cc="$(_ddlce_find_gcc)" || case "${CONDA_BUILD_STATE:-}" in
  BUILD) exit 1 ;;
  TEST) return 0 ;;
  *) return 1 ;;
esac
case "$_ddlce_cc" in
  @TRIPLE@-*) _ddlce_tool="@TRIPLE@-" ;;
  *) _ddlce_tool="" ;;
esac

_ddlce_prefix="$CONDA_PREFIX"
_ddlce_map=""
if [ "${CONDA_BUILD_STATE:-}" = BUILD ]; then
  _ddlce_prefix="$PREFIX"
  # No path of the build machine in what the compiler writes.
  _ddlce_map=" -ffile-prefix-map=$SRC_DIR=/usr/local/src/conda -ffile-prefix-map=$PREFIX=/usr/local/conda"
  # What __DATE__ and its like say. Always: rattler-build sets it to the time of the build, which
  # would make every build another.
  export SOURCE_DATE_EPOCH=1767225600
fi

_ddlce_set CC "$_ddlce_cc"
_ddlce_set AR "${_ddlce_tool}ar"
_ddlce_set NM "${_ddlce_tool}nm"
_ddlce_set RANLIB "${_ddlce_tool}ranlib"
_ddlce_set STRIP "${_ddlce_tool}strip"
_ddlce_set READELF "${_ddlce_tool}readelf"
_ddlce_set HOST "@TRIPLE@"
_ddlce_set BUILD "$(uname -m)-linux-gnu"
@FLAGS@

unset _ddlce_cc _ddlce_tool _ddlce_prefix _ddlce_map
unset -f _ddlce_set _ddlce_find_gcc
