#!/usr/bin/env bash
# Checks the C and C++ that git tracks against each tree's .clang-format; --fix rewrites it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(--dry-run -Werror)
[[ ${1:-} == --fix ]] && mode=(-i)
if ! command -v clang-format >/dev/null; then
  echo "error: clang-format is not there" >&2
  echo "hint:  apt-get install clang-format" >&2
  exit 3
fi
# Not the tests of the base recipes: a changed byte there would rebuild the base for its looks.
git ls-files -z '*.c' '*.cc' '*.cpp' '*.cu' '*.h' '*.hpp' ':!recipes/base' | xargs -0 clang-format --style=file "${mode[@]}"
