# Sourced on activation, by any POSIX-like shell. Sets what build scripts read to the compilers of
# this environment. The values before are kept for the deactivation.

_ddlce_set() {
  eval "if [ -n \"\${$1+set}\" ]; then _DDLCE_OLD_$1=\"\$$1\"; export _DDLCE_OLD_$1; fi"
  eval "$1=\"\$2\"; export $1"
}

_ddlce_compilers="$CONDA_PREFIX"
if [ "${CONDA_BUILD_STATE:-}" = BUILD ]; then
  _ddlce_compilers="$BUILD_PREFIX"
fi
if ! "$_ddlce_compilers/bin/@HOST@-gcc" -dumpversion >/dev/null; then
  echo "gcc_@PLATFORM@: the compiler in $_ddlce_compilers does not run" >&2
  echo "  Its own message is above; install gcc_impl_@PLATFORM@ again if it says no more" >&2
  unset _ddlce_compilers
  unset -f _ddlce_set
  case "${CONDA_BUILD_STATE:-}" in BUILD) exit 1 ;; *) return 1 ;; esac
fi

_ddlce_prefix="$CONDA_PREFIX"
_ddlce_map=""
_ddlce_programs="$_ddlce_compilers/@HOST@/gcc/bin"
case "${CONDA_BUILD_STATE:-}" in
  BUILD)
    _ddlce_prefix="$PREFIX"
    # No path of the build machine in what the compiler writes.
    _ddlce_map=" -ffile-prefix-map=$SRC_DIR=/usr/local/src/conda -ffile-prefix-map=$PREFIX=/usr/local/conda"
    # What __DATE__ and its like say. Always: rattler-build sets it to the time of the build, which
    # would make every build another.
    export SOURCE_DATE_EPOCH=1767225600
    # By their plain names, too: scripts that call `gcc` or `ar` do not get the machine's.
    export PATH="$_ddlce_programs:$PATH" ;;
  TEST) export PATH="$_ddlce_programs:$PATH" ;;
esac

_ddlce_set CC @HOST@-gcc
_ddlce_set AR @HOST@-ar
_ddlce_set AS @HOST@-as
_ddlce_set LD @HOST@-ld
_ddlce_set NM @HOST@-nm
_ddlce_set OBJCOPY @HOST@-objcopy
_ddlce_set OBJDUMP @HOST@-objdump
_ddlce_set RANLIB @HOST@-ranlib
_ddlce_set READELF @HOST@-readelf
_ddlce_set STRIP @HOST@-strip
_ddlce_set HOST @HOST@
_ddlce_set BUILD @BUILD@
@FLAGS@

unset _ddlce_compilers _ddlce_prefix _ddlce_map _ddlce_programs
unset -f _ddlce_set
