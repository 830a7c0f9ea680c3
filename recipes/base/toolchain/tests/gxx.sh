# usage: gxx.sh PLATFORM [EMULATOR...], in an environment where the package is activated
set -euo pipefail
platform=$1 run=("${@:2}")
activate=$CONDA_PREFIX/etc/conda/activate.d/activate-gxx_$platform.sh

# A C compiler without its C++ half: a message, an error, and nothing set.
message=$(env -i PATH="$PATH" CC=/nonexistent/gcc-1 bash -c ". '$activate' && exit 9
  test -z \"\${CXX+set}\"" 2>&1)
echo "$message" | grep -q "gxx_$platform: no C++ compiler /nonexistent/g++-1"

if [ -z "${CXX:-}" ]; then
  test "$platform" != linux-64
  echo "no compiler on this machine: nothing to compile with"
  exit 0
fi

printf '#include <iostream>\nint main() { std::cout << "compiled" << std::endl; }\n' > program.cpp
# shellcheck disable=SC2086
$CXX $CPPFLAGS $CXXFLAGS program.cpp $LDFLAGS -o program
if [ ${#run[@]} = 0 ] || command -v "${run[0]}" > /dev/null; then
  test "$("${run[@]}" ./program)" = compiled
fi
