#!/usr/bin/env bash
# Checks libddl's sources with the checks of .clang-tidy: all, or the files named. Nothing is built:
# the flags are those of its CMakeLists.txt, and mpi.h and yaml.h are the installed environment's.
# JOBS is how many files at a time. The CUDA files are left out: their headers are in no environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { # message, hint
  printf 'error: %s\nhint:  %s\n' "$1" "$2" >&2
  exit 3
}

prefix=${PREFIX:-$(.venv/bin/python -c 'from ddlce.env.layout import Layout
from ddlce.settings import load_settings
print(Layout(load_settings().root).current("ddl-ce") or "")')}
command -v clang-tidy >/dev/null || fail "clang-tidy is not there" "apt-get install clang-tidy"
[[ -f $prefix/include/mpi.h && -f $prefix/include/yaml.h ]] ||
  fail "no environment with mpi.h and yaml.h${prefix:+ in $prefix}" "make, or PREFIX=DIR make tidy"

source=recipes/ddl/src
flags=(-std=c++17 -Wall -Wextra -DMPICH_SKIP_MPICXX -DOMPI_SKIP_MPICXX '-DDDL_VERSION="0"'
  "-I$source/include" "-I$source/lib" -isystem "$prefix/include")
files=("$@")
(($#)) || mapfile -t files < <(git ls-files "$source/lib/*.cc" ":!$source/lib/device/cuda*" \
  ":!$source/lib/device/nccl.cc")
printf '%s\0' "${files[@]}" |
  xargs -0 -P "${JOBS:-$(nproc)}" -I{} clang-tidy --quiet {} -- "${flags[@]}" 2> \
    >(grep -vE '^[0-9]+ warnings?( and [0-9]+ errors?)? generated\.$' >&2)
