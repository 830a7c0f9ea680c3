# Sourced on activation, after gcc's: adds the C++ compiler that belongs to $CC.

_ddlce_set() {
  eval "if [ -n \"\${$1+set}\" ]; then _DDLCE_OLD_$1=\"\$$1\"; export _DDLCE_OLD_$1; fi"
  eval "$1=\"\$2\"; export $1"
}

# x86_64-conda-linux-gnu-gcc → x86_64-conda-linux-gnu-g++, gcc-12 → g++-12
_ddlce_cxx="$(echo "${CC:-no-gcc}" | sed 's/gcc\(-[0-9]*\)\{0,1\}$/g++\1/')"
if ! "$_ddlce_cxx" -dumpversion >/dev/null 2>&1; then
  echo "gxx_@PLATFORM@: no C++ compiler $_ddlce_cxx" >&2
  echo "@GET_GXX@" >&2
  case "${CONDA_BUILD_STATE:-}" in BUILD) exit 1 ;; TEST) return 0 ;; *) return 1 ;; esac
fi

_ddlce_set CXX "$_ddlce_cxx"
_ddlce_set CXXFLAGS "-fvisibility-inlines-hidden $CFLAGS"

unset _ddlce_cxx
unset -f _ddlce_set
